//! Signals that PyTorch's ranks exchange through the job's store: that something failed and all are to dump, and that communicators were
//! aborted. A group that they share says them and hears them.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use phalanx_core::store::{Store, StoreError};
use phalanx_core::{Error, ErrorKind};

use super::hall::{Hall, lock};
use super::keys::torch_keys;
use super::watch::answer;
use crate::api::{Cuda, Nccl, Process, UniqueId};

/// A job with ranks of PyTorch in it, and which of its groups this is.
///
/// When an operation of the group fails here, PyTorch's ranks are told as by one of their own: they dump their flight recorders, and end as
/// their settings say. When one of theirs says so, or has aborted a communicator of this group, the group ends in an error that names the
/// rank, and [`on_dump`](TorchJob::on_dump) is called first. The process is never ended.
#[derive(Clone)]
#[must_use]
pub struct TorchJob {
    store: Store,
    group: usize,
    members: Vec<usize>,
    dump: Option<Dump>,
}

/// What is done when a rank of the job asks for dumps.
type Dump = Arc<dyn Fn(Option<usize>) + Send + Sync>;

impl TorchJob {
    /// Over the store as PyTorch sees it: its group of this number, as in [`torch_keys`], whose ranks are these of the job's, in their order.
    pub fn new(store: Store, group: usize, members: Vec<usize>) -> TorchJob {
        TorchJob { store, group, members, dump: None }
    }

    /// Has this called, once, when another rank of the job has seen an operation fail and asks all to write down what their groups did. It is
    /// called on a thread of the group, with the job's rank that asks where it says so.
    pub fn on_dump(mut self, dump: impl Fn(Option<usize>) + Send + Sync + 'static) -> TorchJob {
        self.dump = Some(Arc::new(dump));
        self
    }

    /// The keys of the group, for whoever makes it.
    pub fn keys(&self) -> Store {
        torch_keys(&self.store, self.group)
    }

    fn remote_error(&self) -> String {
        format!("{REMOTE_ERROR}:{}", self.group)
    }

    /// What the other ranks have signalled, as the error of this one. A store that does not answer is asked no further.
    fn heard(&self, own: usize, ids: &[UniqueId], patience: Duration) -> Result<Option<Error>, StoreError> {
        let (root, keys) = (self.store.with_timeout(patience), self.keys().with_timeout(patience));
        let find = |store: &Store, key: &str| answer(store.find(key));
        let by =
            |value: Vec<u8>| value.try_into().ok().map(i32::from_le_bytes).and_then(|rank| usize::try_from(rank).ok());
        let own = self.members.get(own).copied();
        let named = |rank: Option<usize>| rank.map_or_else(|| "a rank".to_owned(), |rank| format!("rank {rank}"));
        if let Some(rank) = find(&root, EXCEPTION_DUMP)?.map(by).filter(|rank| rank.is_none() || *rank != own) {
            if let Some(dump) = &self.dump {
                dump(rank);
            }
            let told = format!("{} of the job saw an operation fail and asks for dumps", named(rank));
            return Ok(Some(Error::aborted(told)));
        }
        if let Some(rank) = find(&keys, &self.remote_error())?.map(by).filter(|rank| rank.is_none() || *rank != own) {
            return Ok(Some(Error::aborted(format!("{} of the job says that the group failed", named(rank)))));
        }
        for id in ids {
            if let Some(rank) = find(&keys, &aborted(id))? {
                // PyTorch's ranks write the number that they have in the group.
                let rank = String::from_utf8_lossy(&rank).parse().ok().and_then(|rank: usize| self.members.get(rank));
                let named = named(rank.copied());
                return Ok(Some(Error::aborted(format!("{named} has aborted a communicator of this group"))));
            }
        }
        Ok(None)
    }

    /// Tells the others; whether they are told.
    fn tell(&self, own: usize, error: &Error, ids: &[UniqueId], patience: Duration) -> bool {
        let (root, keys) = (self.store.with_timeout(patience), self.keys().with_timeout(patience));
        let rank = self.members.get(own).and_then(|rank| i32::try_from(*rank).ok()).unwrap_or(-1).to_le_bytes();
        // What somebody has said before stays: it was the first.
        let say = |store: &Store, key: &str, value: &[u8]| store.compare_set(key, "", value).is_ok();
        let is_own = error.kind() != ErrorKind::Aborted;
        let told = !is_own || (say(&root, EXCEPTION_DUMP, &rank) && say(&keys, &self.remote_error(), &rank));
        told && ids.iter().all(|id| say(&keys, &aborted(id), own.to_string().as_bytes()))
    }
}

impl fmt::Debug for TorchJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TorchJob of group {} with ranks {:?}", self.group, self.members)
    }
}

impl<N: Nccl, C: Cuda, P: Process> Hall<N, C, P> {
    /// Ends the group where a rank of PyTorch says that it must.
    pub(super) fn hear_signals(self: &Arc<Hall<N, C, P>>) {
        let Some(job) = &self.options.torch else { return };
        if self.fate().is_some() {
            return;
        }
        let ids = lock(&self.ids).clone();
        if let Ok(Some(error)) = job.heard(self.layout.rank(), &ids, self.options.heartbeat) {
            self.fail(error, self.under_way().first());
        }
    }

    /// Tells PyTorch's ranks what this one failed of; whether they are told, or need not be.
    pub(super) fn tell_signals(&self) -> bool {
        let (Some(job), Some(fate)) = (&self.options.torch, self.fate()) else { return true };
        let ids = lock(&self.ids).clone();
        job.tell(self.layout.rank(), &fate.error, &ids, self.options.heartbeat)
    }
}

/// Where it is told that a communicator was aborted: its id as PyTorch writes it, a byte below 16 with one digit.
fn aborted(id: &UniqueId) -> String {
    let mut key = ABORTED.to_owned();
    for byte in id.0 {
        let _ = write!(key, "{byte:x}");
    }
    key
}

/// Below no prefix: the first rank of the job that saw an operation fail, as a number of four bytes.
const EXCEPTION_DUMP: &str = "/exception_dump";
/// Below the group's: the same of this group alone.
const REMOTE_ERROR: &str = "remote_error";
/// Below the group's: which rank of the group has aborted a communicator, as text.
const ABORTED: &str = "NCCLABORTEDCOMM:";
