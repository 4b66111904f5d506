//! What a client is told: where the store is, who it is itself, and how long to try.

use std::time::Duration;

use crate::secure::{Claim, JobKey};
use crate::store::StoreAddress;

/// How a client reaches a store.
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientOptions {
    pub(super) address: StoreAddress,
    pub(super) key: Option<JobKey>,
    pub(super) claim: Option<Claim>,
    pub(super) insecure: bool,
    pub(super) timeout: Duration,
    pub(super) speech: Speech,
}

/// Which words a client without a key uses. With a key it is always our own frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Speech {
    /// Our frames where the server knows them, and PyTorch's words where not.
    #[default]
    Either,
    /// PyTorch's words with every server.
    PyTorch,
}

impl ClientOptions {
    /// A client of the store at `address`, with no key, no rank and 60 s to reach it.
    pub fn new(address: StoreAddress) -> ClientOptions {
        ClientOptions {
            address,
            key: None,
            claim: None,
            insecure: false,
            timeout: Duration::from_secs(60),
            speech: Speech::Either,
        }
    }

    /// The job's key, which server and client prove to each other. Everything sent is then encrypted.
    pub fn key(mut self, key: JobKey) -> ClientOptions {
        self.key = Some(key);
        self
    }

    /// Who this client is: its job, epoch, world and rank. A member of the job `default` in epoch 0 without rank unless set.
    pub fn claim(mut self, claim: Claim) -> ClientOptions {
        self.claim = Some(claim);
        self
    }

    /// Whether to go to another machine without a key. Then anybody on the way can read and change what is stored.
    pub fn insecure(mut self, insecure: bool) -> ClientOptions {
        self.insecure = insecure;
        self
    }

    /// How long [`TcpStore::connect`](super::TcpStore::connect) tries to reach the server, which may not be up yet. 60 s
    /// unless set.
    pub fn timeout(mut self, timeout: Duration) -> ClientOptions {
        self.timeout = timeout;
        self
    }

    /// Which words to use where there is no key.
    pub fn speech(mut self, speech: Speech) -> ClientOptions {
        self.speech = speech;
        self
    }
}
