//! Connections that nobody uses at the moment. A few are kept; a call that finds none opens another.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::connection::Connection;

/// The connections at rest.
#[derive(Debug, Default)]
pub(super) struct Idle {
    connections: Mutex<Vec<Connection>>,
}

impl Idle {
    /// A connection that can be used at once. Those that broke meanwhile are closed.
    pub(super) fn take(&self) -> Option<Connection> {
        loop {
            // The lock is not held while a socket is looked at.
            let connection = self.lock().pop()?;
            if connection.is_free() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for later, unless its last exchange has not ended or there are enough.
    pub(super) fn give(&self, connection: Connection) {
        if connection.is_settled() {
            let mut connections = self.lock();
            if connections.len() < MOST {
                connections.push(connection);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Connection>> {
        // Pushing and popping leave nothing half done.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most connections at rest.
const MOST: usize = 4;
