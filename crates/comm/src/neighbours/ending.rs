//! What the end of a neighbour's ring or window means. It says nothing of the neighbour's fate: that is told on the control
//! connection, which may be later.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_core::link::LinkError;

use crate::net::Standing;

/// How one neighbour ends.
pub(super) struct Ending {
    rank: usize,
    standing: Arc<Standing>,
    /// Since when it has ended without a word.
    since: Cell<Option<Instant>>,
}

impl Ending {
    pub(super) fn new(rank: usize, standing: Arc<Standing>) -> Ending {
        Ending { rank, standing, since: Cell::new(None) }
    }

    /// What to say of a neighbour that has ended; nothing while it may still be said why.
    pub(super) fn judge(&self) -> Result<(), LinkError> {
        let rank = Some(self.rank);
        if self.standing.has_left() {
            return Err(LinkError::Left { rank });
        }
        let since = self.since.get().unwrap_or_else(Instant::now);
        self.since.set(Some(since));
        if self.standing.is_lost() || since.elapsed() > GRACE {
            return Err(LinkError::Closed { rank });
        }
        Ok(())
    }
}

/// How long the reason may take, which comes over a connection.
const GRACE: Duration = Duration::from_secs(1);
