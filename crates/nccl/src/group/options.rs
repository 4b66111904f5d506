//! How a group over NCCL behaves.

use std::sync::Arc;
use std::time::Duration;

use super::signals::TorchJob;
use crate::api::CommConfig;

/// How a group over NCCL behaves. Ranks must agree on all but the times.
#[derive(Clone, Debug)]
#[must_use]
pub struct NcclOptions {
    pub(super) config: CommConfig,
    pub(super) is_high_priority: bool,
    pub(super) keeps_time: bool,
    pub(super) is_strict: bool,
    pub(super) compares_results: bool,
    pub(super) checks_nan: bool,
    pub(super) heartbeat: Duration,
    pub(super) unresponsive: Duration,
    pub(super) abort_timeout: Duration,
    /// Whether the environment has communicators of the library block, whatever they are made with.
    pub(super) blocks: bool,
    pub(super) torch: Option<TorchJob>,
    pub(super) members: Option<Arc<[usize]>>,
    pub(super) name: Option<Arc<str>>,
}

impl Default for NcclOptions {
    /// Streams of ordinary priority, no timing, a heartbeat of 250 ms, a rank lost that was silent for 10 s, 5 s for an abort.
    fn default() -> NcclOptions {
        NcclOptions {
            config: CommConfig::default(),
            is_high_priority: false,
            keeps_time: false,
            is_strict: false,
            compares_results: false,
            checks_nan: false,
            heartbeat: Duration::from_millis(250),
            unresponsive: Duration::from_secs(10),
            abort_timeout: Duration::from_secs(5),
            blocks: false,
            torch: None,
            members: None,
            name: None,
        }
    }
}

impl NcclOptions {
    /// Which ranks of the world are the group's, so that what ranks tell each other of failures names those; unless set, rank `i` is the
    /// world's rank `i`. [`DeviceGroup`](super::DeviceGroup) takes what its group's options say.
    pub fn members(mut self, members: impl Into<Arc<[usize]>>) -> NcclOptions {
        self.members = Some(members.into());
        self
    }

    /// What the group is called where another group's operations wait for its own. [`DeviceGroup`](super::DeviceGroup) takes what its group's
    /// options say.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> NcclOptions {
        self.name = Some(name.into());
        self
    }

    /// How communicators are made. They never block, whatever it says.
    pub fn config(mut self, config: CommConfig) -> NcclOptions {
        self.config = CommConfig { blocking: false, ..config };
        self
    }

    /// Whether collectives go before other work of the device: `TORCH_NCCL_HIGH_PRIORITY`.
    pub fn high_priority(mut self, is_high: bool) -> NcclOptions {
        self.is_high_priority = is_high;
        self
    }

    /// Whether operations say how long the device took: `TORCH_NCCL_ENABLE_TIMING`.
    pub fn timing(mut self, keeps_time: bool) -> NcclOptions {
        self.keeps_time = keeps_time;
        self
    }

    /// Whether ranks compare each operation before it begins, so that nothing moves where they differ; it costs a meeting on the store
    /// each time. Otherwise they compare while it runs, at most a heartbeat late.
    pub fn strict(mut self, is_strict: bool) -> NcclOptions {
        self.is_strict = is_strict;
        self
    }

    /// Whether ranks compare what operations gave that give all of them the same: each copies it to its host and tells the others a hash.
    pub fn compare_results(mut self, compares: bool) -> NcclOptions {
        self.compares_results = compares;
        self
    }

    /// Whether what this rank gives is looked through for NaN on the device before an operation begins: `TORCH_NCCL_NAN_CHECK`. An operation
    /// with one is refused with its place, and the group ends. Each waits for its own check, so this is for finding mistakes. A device must
    /// [know the kernels](crate::library::Program::load_nan_check).
    pub fn check_nan(mut self, checks: bool) -> NcclOptions {
        self.checks_nan = checks;
        self
    }

    /// Whether [`check_nan`](NcclOptions::check_nan) was chosen, so that devices must know its kernels.
    pub fn needs_nan_check(&self) -> bool {
        self.checks_nan
    }

    /// How often a rank tells the others how it stands, and looks after its operations. Of longer spans than a year, here and below, a year counts.
    pub fn heartbeat(mut self, every: Duration) -> NcclOptions {
        self.heartbeat = every.clamp(Duration::from_millis(1), LONGEST);
        self
    }

    /// After how much silence a rank is given up.
    pub fn unresponsive(mut self, after: Duration) -> NcclOptions {
        self.unresponsive = after.min(LONGEST);
        self
    }

    /// How long an abort may take, or the end of a communicator that is left, before that is abandoned. Where somebody waits for that
    /// ([`leave`](super::DeviceGroup::leave)), an end may take as long as he does.
    pub fn abort_timeout(mut self, timeout: Duration) -> NcclOptions {
        self.abort_timeout = timeout.min(LONGEST);
        self
    }

    /// Shares the group with PyTorch's ranks of a job: their signals are heard, and this rank's are theirs to hear.
    pub fn torch(mut self, job: TorchJob) -> NcclOptions {
        self.torch = Some(job);
        self
    }
}

/// What a clock can always count to, and several times as much.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
