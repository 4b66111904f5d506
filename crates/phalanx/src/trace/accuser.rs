//! Whom a rank tells its launcher to be at fault when a group of it fails: the first time in each world that it is in.

use std::sync::{Mutex, OnceLock, PoisonError};

use phalanx_comm::Registry;
use phalanx_core::{Error, Scope};

use crate::report;

/// Tells the launcher of failures.
#[derive(Debug, Default)]
pub(super) struct Accuser {
    /// The world that the launcher has started: ranks of later ones have other numbers than it gave them.
    first: OnceLock<Place>,
    /// The world in which it has told of a failure: those after the first in the same mostly follow from it.
    told: Mutex<Option<Place>>,
}

/// A rank and the size of its world, and when that met.
type Place = ((usize, usize), Option<u64>);

impl Accuser {
    /// The rank has joined.
    pub(super) fn begin(&self, registry: &Registry) {
        let _ = self.first.set(place(registry));
    }

    /// A call of a group has failed.
    pub(super) fn accuse(&self, registry: &Registry, error: &Error) {
        if let Some(ranks) = self.accused(registry, error) {
            report::accuse(error, &ranks);
        }
    }

    /// The launcher's ranks that a failure is laid on; none where it is nothing to tell.
    fn accused(&self, registry: &Registry, error: &Error) -> Option<Vec<usize>> {
        let now = place(registry);
        // After what concerns one call the group goes on.
        if error.scope() == Scope::Call
            || self.told.lock().unwrap_or_else(PoisonError::into_inner).replace(now) == Some(now)
        {
            return None;
        }
        let (seat, met) = *self.first.get()?;
        let is_first = now.0 == seat && (met.is_none() || now.1 == met);
        Some(if is_first { error.culprits() } else { vec![] })
    }
}

fn place(registry: &Registry) -> Place {
    (registry.seat(), registry.met_ns())
}

#[cfg(test)]
mod tests {
    use phalanx_core::PeerReason;

    use super::*;

    #[test]
    fn the_first_failure_of_a_group_is_laid_on_ranks_of_the_job() {
        let registry = Registry::of(3, 8);
        let accuser = Accuser::default();
        let (wrong, dead) =
            (Error::usage("send", "to", 7, "must be less"), Error::peer(5, PeerReason::Dead, "it ended"));
        assert_eq!(accuser.accused(&registry, &dead), None, "it has not joined");
        let accuser = Accuser::default();
        accuser.begin(&registry);
        assert_eq!(accuser.accused(&registry, &wrong), None);
        assert_eq!(accuser.accused(&registry, &dead), Some(vec![5]));
        assert_eq!(accuser.accused(&registry, &dead), None, "it was told");
    }

    #[test]
    fn ranks_of_a_world_that_has_changed_are_not_those_of_the_launcher() {
        let accuser = Accuser::default();
        accuser.begin(&Registry::of(3, 8));
        let changed = Registry::of(2, 7);
        let dead = Error::peer(1, PeerReason::Dead, "it ended");
        assert_eq!(accuser.accused(&changed, &dead), Some(vec![]));
    }
}
