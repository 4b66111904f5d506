//! What a server is started with.

use std::time::Duration;

use phalanx_core::store::Limits;

use crate::secure::{JobKey, JobName};
use crate::store::StoreAddress;

/// Where a store is served, to whom, and how much of it.
#[derive(Debug)]
#[must_use]
pub struct ServerOptions {
    pub(super) address: StoreAddress,
    pub(super) key: Option<JobKey>,
    pub(super) job: Option<JobName>,
    pub(super) epoch: u32,
    pub(super) world: u32,
    pub(super) insecure: bool,
    pub(super) limits: Limits,
    pub(super) patience: Duration,
}

impl ServerOptions {
    /// A server at exactly `address`; port 0 takes a free one, which [`StoreServer::address`](super::StoreServer::address)
    /// tells. The machine's name may be a loopback address to itself alone: with a key, or [`insecure`](Self::insecure), all
    /// interfaces are served then.
    pub fn new(address: StoreAddress) -> ServerOptions {
        ServerOptions {
            address,
            key: None,
            job: None,
            epoch: 0,
            world: 0,
            insecure: false,
            limits: Limits::default(),
            patience: Duration::from_secs(2),
        }
    }

    /// Serves only who proves this key. Without one the server speaks PyTorch's protocol and ours in clear, and only to
    /// this machine.
    pub fn key(mut self, key: JobKey) -> ServerOptions {
        self.key = Some(key);
        self
    }

    /// Serves only this job. Any job unless set.
    pub fn job(mut self, job: JobName) -> ServerOptions {
        self.job = Some(job);
        self
    }

    /// The epoch that is served first. 0 unless set.
    pub fn epoch(mut self, epoch: u32) -> ServerOptions {
        self.epoch = epoch;
        self
    }

    /// How many ranks the world has; 0, unless set, accepts what each client says.
    pub fn world(mut self, ranks: u32) -> ServerOptions {
        self.world = ranks;
        self
    }

    /// Serves without a key even where other machines can reach it: whoever does may read and change everything.
    pub fn insecure(mut self, insecure: bool) -> ServerOptions {
        self.insecure = insecure;
        self
    }

    /// How much is taken from clients.
    pub fn limits(mut self, limits: Limits) -> ServerOptions {
        self.limits = limits;
        self
    }

    /// How long a connection may take to say, and to prove, who it is. 2 seconds unless set.
    pub fn patience(mut self, patience: Duration) -> ServerOptions {
        self.patience = patience;
        self
    }
}
