//! What can go wrong with one try of a call, before it is known whether another try mends it.

use std::io;

use phalanx_core::store::Refusal;
use phalanx_core::store::wire::Malformed;

use crate::secure::TunnelError;

/// Why a try gave no reply.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Its time is over.
    Late,
    /// The server closed or reset the connection; what it had just been told may be why.
    Closed(String),
    /// The server, which had shown that it is one of ours, closed the connection when we proved our key.
    Unwelcome(String),
    /// The connection is of no more use for another reason.
    Broken(String),
    /// The server cannot be reached, although it was tried until then.
    Unreachable(String),
    /// As that, but nothing was seen that explains it: there was only no answer.
    Silent(String),
    /// The store does not do it.
    Refused(Refusal),
    /// The server lets nobody like us in.
    Denied(String),
}

impl Trouble {
    /// What a failed call on a socket means.
    pub(super) fn io(error: &io::Error) -> Trouble {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted => {
                Trouble::Closed("the server reset the connection".to_owned())
            }
            _ => Trouble::Broken(format!("the connection failed: {error}")),
        }
    }

    /// The server closed the connection in good order.
    pub(super) fn end() -> Trouble {
        Trouble::Closed("the server closed the connection".to_owned())
    }
}

impl From<Malformed> for Trouble {
    fn from(malformed: Malformed) -> Trouble {
        Trouble::Broken(format!("the server's answer makes no sense: {malformed}"))
    }
}

impl From<TunnelError> for Trouble {
    fn from(error: TunnelError) -> Trouble {
        Trouble::Broken(format!("the encrypted stream broke: {error}"))
    }
}
