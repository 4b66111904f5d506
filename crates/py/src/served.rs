//! A store server that Python may close before it lets go of it.

use std::sync::{Mutex, PoisonError};

use phalanx_comm::store::StoreServer;

/// A server until it is closed.
pub(crate) struct Served(Mutex<Option<StoreServer>>);

impl Served {
    pub(crate) fn new(server: StoreServer) -> Served {
        Served(Mutex::new(Some(server)))
    }

    /// Where there is none, or no more.
    pub(crate) fn nothing() -> Served {
        Served(Mutex::new(None))
    }

    pub(crate) fn close(&self) {
        drop(self.take());
    }

    /// Serves what `other` served, which serves nothing then.
    pub(crate) fn take_over(&self, other: &Served) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = other.take();
    }

    fn take(&self) -> Option<StoreServer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
