//! A store server that belongs to the process that started it: a forked child has its memory, but not its threads.

use std::mem;
use std::process;
use std::sync::{Mutex, PoisonError};

use phalanx_comm::store::StoreServer;

/// A server until it is closed. In a forked child it is neither stopped nor waited for.
pub(crate) struct Served {
    server: Mutex<Option<StoreServer>>,
    owner: u32,
}

impl Served {
    pub(crate) fn new(server: StoreServer) -> Served {
        Served { server: Mutex::new(Some(server)), owner: process::id() }
    }

    pub(crate) fn close(&self) {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        if process::id() != self.owner {
            // Its sockets close with the child.
            mem::forget(server);
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.close();
    }
}
