//! What went wrong at the door. These are for this side's log and counters; a stranger is told nothing.

use std::io;

use super::ClaimError;

/// Why a handshake ended without a tunnel. The connection is to be closed, without another byte.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The first bytes are not ours.
    #[error("no hello of Phalanx: the first bytes are \"{}\"", start.escape_ascii())]
    Magic {
        /// What came instead.
        start: Vec<u8>,
    },
    /// The peer speaks another version of the protocol.
    #[error("the peer speaks version {theirs} of the protocol, this side version {ours}")]
    Version {
        /// The peer's version.
        theirs: u16,
        /// This side's version.
        ours: u16,
    },
    /// A message has a length that it cannot have.
    #[error("a {message} of {len} bytes, where {expected} are allowed")]
    Length {
        /// Which message.
        message: &'static str,
        /// How long it says it is.
        len: usize,
        /// How long it may be.
        expected: &'static str,
    },
    /// The hello asks for a protection that nobody knows.
    #[error("protection is {theirs}, must be 0 for none or 1 for the job key")]
    Mode {
        /// Its number.
        theirs: u8,
    },
    /// The hello is for another kind of server.
    #[error("the hello is for plane {theirs}, which is not served here")]
    Plane {
        /// The plane's number.
        theirs: u8,
    },
    /// The client has no key, and this server wants one.
    #[error("the client offers no key, which this server asks for")]
    KeyRequired,
    /// The client wants to prove a key, and this server has none.
    #[error("the client offers a key, and this server has none")]
    NoKey,
    /// What the hello says of the client cannot be.
    #[error("the hello's {0}")]
    Claim(#[from] ClaimError),
    /// The peer does not have our key, or its bytes were changed, or are those of an earlier connection.
    #[error("the peer has another key, or its bytes were changed or sent before")]
    Key,
    /// The server's answer is none that can be given.
    #[error("the server's answer is malformed: {detail}")]
    Answer {
        /// What is wrong with it.
        detail: String,
    },
    /// The job key is all zeros, because this process was forked from the one that had it.
    #[error("the job key was wiped from this process, which was forked from the one that had it")]
    Wiped,
    /// The system or the Noise library refused.
    #[error("{what} failed: {detail}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What was said.
        detail: String,
    },
    /// The handshake has ended already.
    #[error("bytes for a handshake that has ended")]
    Ended,
}

/// Why bytes could not be sealed or opened. The connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TunnelError {
    /// A record has a length that no record has.
    #[error("a record of {len} bytes, which none has")]
    Length {
        /// How long it says it is.
        len: usize,
    },
    /// A record was changed, dropped, repeated or moved.
    #[error("a record was changed, dropped, repeated or moved")]
    Forged,
    /// A record was refused before, and nothing that follows can be believed.
    #[error("the stream was broken before")]
    Broken,
    /// All 2^64 - 1 records that one key can protect were used.
    #[error("the keys of the connection are used up")]
    Exhausted,
}

impl HandshakeError {
    /// The reason in one word, for counting.
    pub fn reason(&self) -> &'static str {
        match self {
            HandshakeError::Magic { .. } => "magic",
            HandshakeError::Version { .. } => "version",
            HandshakeError::Length { .. } => "length",
            HandshakeError::Mode { .. } => "mode",
            HandshakeError::Plane { .. } => "plane",
            HandshakeError::KeyRequired => "key-required",
            HandshakeError::NoKey => "no-key",
            HandshakeError::Claim(_) => "claim",
            HandshakeError::Key => "key",
            HandshakeError::Answer { .. } => "answer",
            HandshakeError::Wiped => "wiped",
            HandshakeError::System { .. } => "system",
            HandshakeError::Ended => "ended",
        }
    }

    pub(crate) fn random(error: impl Into<io::Error>) -> HandshakeError {
        HandshakeError::System { what: "random bytes", detail: error.into().to_string() }
    }
}
