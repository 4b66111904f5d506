//! How long the calls of one handle may take. The group itself is the same for all of them.

use std::time::Duration;

use super::Group;
use crate::{Error, Result, Site};

impl Group {
    /// The same group through a handle whose calls may take this long, instead of what
    /// [`GroupOptions::timeout`](crate::GroupOptions::timeout) says. A call that takes longer ends the group all the same.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use phalanx_core::{Group, ReduceOp, Result};
    /// # fn step(group: &Group, loss: &mut [f32]) -> Result<()> {
    /// group.within(Duration::from_secs(5)).all_reduce(loss, ReduceOp::Avg)
    /// # }
    /// ```
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Group {
        Group { timeout, ..self.clone() }
    }

    /// The same group through a handle whose calls are told as called there, or by whoever calls it in Rust where nothing is given. It is for
    /// layers between a group and a program in another language, whose own lines say nothing to its author.
    #[must_use]
    pub fn at(&self, site: impl Into<Option<Site>>) -> Group {
        Group { site: site.into(), ..self.clone() }
    }

    /// Plays one part of a call that began at this moment of the backend's clock. The parts have the call's time together, and one that
    /// takes too long tells how long the whole call may take.
    pub(super) fn part<T>(&self, began: Duration, play: impl FnOnce(&Group) -> Result<T>) -> Result<T> {
        let passed = self.shared.backend.now().saturating_sub(began);
        play(&self.within(self.timeout.saturating_sub(passed))).map_err(|mut error| {
            if let Error::Timeout(timeout) = &mut error {
                timeout.after = self.timeout;
            }
            error
        })
    }

    /// How long a call of this handle may take before it ends in [`Error::Timeout`](crate::Error::Timeout).
    pub fn timeout(&self) -> Duration {
        self.timeout
    }
}
