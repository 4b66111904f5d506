//! What a server of PyTorch can do beyond the basics. Its older kinds close the connection on what they do not know, which
//! looks like a crash, so each is asked with a harmless request before the first one that matters.

use std::sync::atomic::{AtomicU8, Ordering};

use phalanx_core::store::Request;

/// What is known of the server.
#[derive(Debug, Default)]
pub(super) struct Capabilities {
    queues: Knowledge,
    lists: Knowledge,
}

/// Something that not every server can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capability {
    /// `Push`, `Pop` and `QueueLen`.
    Queues,
    /// `ListKeys` and `Barrier`, which came together.
    Lists,
}

/// Whether the server can do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Yes,
    No,
    /// It has to be asked.
    NotYet,
}

impl Capability {
    /// What `request` needs.
    pub(super) fn of(request: &Request) -> Option<Capability> {
        match request {
            Request::Push { .. } | Request::Pop { .. } | Request::QueueLen { .. } => Some(Capability::Queues),
            Request::ListKeys | Request::Barrier { .. } => Some(Capability::Lists),
            _ => None,
        }
    }

    /// A request that changes nothing and needs it.
    pub(super) fn question(self) -> Request {
        match self {
            Capability::Queues => Request::QueueLen { key: "/".into() },
            Capability::Lists => Request::ListKeys,
        }
    }
}

impl Capabilities {
    pub(super) fn known(&self, capability: Capability) -> Known {
        match self.knowledge(capability).load(Ordering::Relaxed) {
            YES => Known::Yes,
            closed if closed >= CONVINCED => Known::No,
            _ => Known::NotYet,
        }
    }

    /// The server answered.
    pub(super) fn answered(&self, capability: Capability) {
        self.knowledge(capability).store(YES, Ordering::Relaxed);
    }

    /// The server closed the connection.
    pub(super) fn closed(&self, capability: Capability) {
        let more = |closed: u8| (closed < CONVINCED).then(|| closed + 1);
        // At the most it is convinced already.
        let _ = self.knowledge(capability).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    fn knowledge(&self, capability: Capability) -> &Knowledge {
        match capability {
            Capability::Queues => &self.queues,
            Capability::Lists => &self.lists,
        }
    }
}

/// How often the server closed the connection when asked, or [`YES`].
type Knowledge = AtomicU8;

const YES: u8 = u8::MAX;
/// Once may be a crash.
const CONVINCED: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_closed_connection_proves_nothing() {
        let capabilities = Capabilities::default();
        assert_eq!(capabilities.known(Capability::Queues), Known::NotYet);
        capabilities.closed(Capability::Queues);
        assert_eq!(capabilities.known(Capability::Queues), Known::NotYet);
        capabilities.closed(Capability::Queues);
        assert_eq!(capabilities.known(Capability::Queues), Known::No);
        assert_eq!(capabilities.known(Capability::Lists), Known::NotYet);
        capabilities.closed(Capability::Lists);
        capabilities.answered(Capability::Lists);
        capabilities.closed(Capability::Lists);
        assert_eq!(capabilities.known(Capability::Lists), Known::Yes);
    }
}
