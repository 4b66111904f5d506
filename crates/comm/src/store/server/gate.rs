//! Who is let in: the key that has to be proven, and what the roster says about a claim.

use std::time::Instant;

use super::counts::Rejection;
use super::roster::Roster;
use super::socket::Peer;
use crate::secure::{Claim, Denial, HandshakeError, JobKey, Plane, ServerHandshake, Verdict, Welcome};

/// What decides about newcomers.
#[derive(Debug)]
pub(super) struct Gate {
    key: Option<JobKey>,
    /// Tells this server from one that had its address before.
    instance: u64,
    pub(super) roster: Roster,
}

impl Gate {
    pub(super) fn new(key: Option<JobKey>, instance: u64, roster: Roster) -> Gate {
        Gate { key, instance, roster }
    }

    /// Whether nobody has to prove anything here.
    pub(super) fn is_open(&self) -> bool {
        self.key.is_none()
    }

    pub(super) fn handshake(&self) -> ServerHandshake {
        ServerHandshake::new(self.key.as_ref(), Plane::Store)
    }

    /// Decides about one who has proven whatever is to be proven. Whoever is let in counts as connected from here on.
    pub(super) fn judge(&mut self, claim: &Claim, peer: &Peer, now: Instant) -> Verdict {
        self.roster.join(claim, &peer.to_string(), now)?;
        Ok(Welcome { instance: self.instance, epoch: self.roster.epoch() })
    }
}

/// How a failed handshake is counted.
impl From<&HandshakeError> for Rejection {
    fn from(error: &HandshakeError) -> Rejection {
        match error {
            HandshakeError::Magic { .. } => Rejection::Garbage,
            HandshakeError::Version { .. } => Rejection::Version,
            HandshakeError::KeyRequired | HandshakeError::NoKey => Rejection::Mode,
            HandshakeError::Key => Rejection::Key,
            HandshakeError::Wiped | HandshakeError::System { .. } => Rejection::Fault,
            _ => Rejection::Hello,
        }
    }
}

/// How a denied claim is counted.
impl From<&Denial> for Rejection {
    fn from(denial: &Denial) -> Rejection {
        match denial {
            Denial::WrongJob { .. } => Rejection::Job,
            Denial::WrongEpoch { .. } => Rejection::Epoch,
            Denial::WrongWorld { .. } => Rejection::World,
            Denial::RankOutOfRange { .. } => Rejection::Rank,
            Denial::RankTaken { .. } => Rejection::Taken,
            Denial::Full { .. } => Rejection::Full,
            _ => Rejection::Fault,
        }
    }
}
