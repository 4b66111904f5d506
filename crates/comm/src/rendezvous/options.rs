//! What a rank brings to a world besides the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_core::Alarm;
use phalanx_core::schedule::Profile;

use crate::Backends;
use crate::secure::{JobKey, JobName};

/// Which world to join, and as whom.
///
/// ```
/// use std::time::Duration;
/// use phalanx_comm::rendezvous::{World, WorldOptions};
/// use phalanx_comm::store::LocalStore;
/// use phalanx_core::store::Store;
///
/// // Here one rank in a store of its own; of many each has a handle to the same.
/// let options = WorldOptions::new(0, 1).epoch(2).timeout(Duration::from_secs(60));
/// let world = World::join(Store::new(LocalStore::default()), &options)?;
/// assert_eq!((world.rank(), world.size(), world.epoch()), (0, 1, 2));
/// # Ok::<(), phalanx_core::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct WorldOptions {
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) local_rank: Option<usize>,
    pub(super) local_size: Option<usize>,
    pub(super) timeout: Duration,
    pub(super) epoch: u32,
    pub(super) job: JobName,
    pub(super) began: Option<Instant>,
    pub(super) interval: Duration,
    pub(super) key: Option<JobKey>,
    pub(super) insecure: bool,
    pub(super) profile: Option<Profile>,
    pub(super) alarm: Option<Arc<dyn Alarm>>,
    pub(super) backends: Backends,
}

impl WorldOptions {
    /// Rank `rank` of a world of `size`.
    pub fn new(rank: usize, size: usize) -> WorldOptions {
        WorldOptions {
            rank,
            size,
            local_rank: None,
            local_size: None,
            timeout: DEFAULT_TIMEOUT,
            epoch: 0,
            job: JobName::default(),
            began: None,
            interval: Duration::from_secs(10),
            key: None,
            insecure: false,
            profile: None,
            alarm: None,
            backends: Backends::default(),
        }
    }

    /// This rank's number on its host, where a launcher gave it one. Otherwise ranks of a host are numbered in order.
    pub fn local_rank(mut self, local_rank: usize) -> WorldOptions {
        self.local_rank = Some(local_rank);
        self
    }

    /// How many ranks the launcher says this host has; a difference from what the ranks say is logged, and they are right.
    pub fn local_size(mut self, local_size: usize) -> WorldOptions {
        self.local_size = Some(local_size);
        self
    }

    /// How long to wait for the other ranks. 300 s unless set.
    pub fn timeout(mut self, timeout: Duration) -> WorldOptions {
        self.timeout = timeout;
        self
    }

    /// When the time began to run, where reaching the store has taken some of it already. At the call unless set.
    pub fn began(mut self, began: Instant) -> WorldOptions {
        self.began = Some(began);
        self
    }

    /// How often the job was started anew. Ranks of different epochs never meet. 0 unless set.
    pub fn epoch(mut self, epoch: u32) -> WorldOptions {
        self.epoch = epoch;
        self
    }

    /// The job. Ranks of different jobs never meet, even on one store. `default` unless set.
    pub fn job(mut self, job: JobName) -> WorldOptions {
        self.job = job;
        self
    }

    /// The job key, which ranks prove to each other where their groups go over TCP.
    pub fn key(mut self, key: JobKey) -> WorldOptions {
        self.key = Some(key);
        self
    }

    /// Whether groups may go over TCP beyond this host without a key.
    pub fn insecure(mut self, insecure: bool) -> WorldOptions {
        self.insecure = insecure;
        self
    }

    /// By which limits the groups of the world choose algorithms, where they are not told others.
    pub fn profile(mut self, profile: Profile) -> WorldOptions {
        self.profile = Some(profile);
        self
    }

    /// Something that is told when calls of the world's groups fail.
    pub fn alarm(mut self, alarm: Arc<dyn Alarm>) -> WorldOptions {
        self.alarm = Some(alarm);
        self
    }

    /// Which backends the groups of the world may have. The host's alone unless set.
    pub fn backends(mut self, backends: Backends) -> WorldOptions {
        self.backends = backends;
        self
    }

    /// How often the log says who is still missing. 10 s unless set.
    pub fn interval(mut self, interval: Duration) -> WorldOptions {
        self.interval = interval;
        self
    }
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);
