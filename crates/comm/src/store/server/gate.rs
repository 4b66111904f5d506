//! Who is let in: the key that has to be proven, and what the roster says about a claim.

use std::time::Instant;

use super::counts::Rejection;
use super::roster::Roster;
use super::socket::Peer;
use crate::secure::{Claim, Claimant, Denial, HandshakeError, JobKey, Plane, ServerHandshake, Tunnel, Welcome};

/// What decides about newcomers.
#[derive(Debug)]
pub(super) struct Gate {
    key: Option<JobKey>,
    /// Tells this server from one that had its address before.
    instance: u64,
    pub(super) roster: Roster,
}

/// What a claimant is to be told.
#[derive(Debug)]
pub(super) enum Verdict {
    Admitted { answer: Vec<u8>, tunnel: Tunnel, claim: Claim },
    Denied { answer: Vec<u8>, denial: Denial },
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

    /// Decides about a claimant that has proven whatever is to be proven.
    pub(super) fn judge(&mut self, claimant: Claimant, peer: &Peer, now: Instant) -> Result<Verdict, HandshakeError> {
        let claim = claimant.claim().clone();
        match self.roster.join(&claim, &peer.to_string(), now) {
            Ok(()) => {
                let welcome = Welcome { instance: self.instance, epoch: self.roster.epoch() };
                let admitted = claimant.admit(&welcome).inspect_err(|_| self.roster.leave(&claim));
                admitted.map(|(answer, tunnel)| Verdict::Admitted { answer, tunnel, claim })
            }
            Err(denial) => Ok(Verdict::Denied { answer: claimant.deny(&denial)?, denial }),
        }
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
            _ => Rejection::Fault,
        }
    }
}
