//! How a lane comes by its communicator.

use std::sync::atomic::Ordering;

use phalanx_core::store::StoreError;
use phalanx_core::{Error, Result};

use super::failure;
use super::hall::lock;
use super::job::{Job, Split};
use super::lane::{Hold, Lane, Line};
use super::pause::Pause;
use crate::api::{Comm, CommConfig, Cuda, Nccl, Process, Status, UniqueId};

impl<N: Nccl, C: Cuda, P: Process> Lane<N, C, P> {
    /// The communicator, which the ranks make together when they first need it.
    pub(super) fn joined(&self, job: &Job<C>) -> Result<Comm> {
        {
            let mut hold = lock(&self.hold);
            match *hold {
                Hold::Made(comm) => return Ok(comm),
                Hold::None => *hold = Hold::Making,
                _ => return Err(Error::aborted("the communicator is gone")),
            }
        }
        let made = self.make(job);
        if made.is_err() {
            // There is none, whoever has given it up meanwhile.
            self.pass_away([Hold::Making, Hold::Abandoned]);
        }
        made
    }

    fn make(&self, job: &Job<C>) -> Result<Comm> {
        let (hall, nccl) = (&self.hall, &*self.hall.stack.nccl);
        let (rank, size, key) = self.seat();
        let left = || job.flight.deadline.saturating_sub(hall.now());
        let lost = |error: StoreError| Error::setup("NCCL's id", error);
        let id = if rank == 0 {
            let id = nccl.unique_id().map_err(|status| failure::of_nccl(nccl, "ncclGetUniqueId", status, None))?;
            hall.store.with_timeout(left()).set(&key, id.0).map_err(lost)?;
            id
        } else {
            // For a moment at a time: after a failure nobody brings it any more.
            let bytes = loop {
                let left = left();
                match hall.store.with_timeout(left.min(hall.options.heartbeat)).get(&key) {
                    Ok(bytes) => break bytes,
                    Err(StoreError::Timeout { .. }) if left > hall.options.heartbeat => hall.check()?,
                    // Nobody came to bring it: that is the operation's time, and who is missing is known elsewhere.
                    Err(StoreError::Timeout { .. }) => return Err(hall.late(&job.flight)),
                    Err(error) => return Err(lost(error)),
                }
            };
            let len = bytes.len();
            let id = bytes.try_into().map_err(|_| Error::setup("NCCL's id", format!("{len} bytes rather than 128")))?;
            UniqueId(id)
        };
        lock(&hall.ids).push(id);
        let config = CommConfig { blocking: false, ..hall.options.config.clone() };
        let (status, comm) = nccl.init(hall.stack.device, rank, size, &id, &config);
        let is_there = status.is_success() || status.is_in_progress();
        if !is_there {
            let error = failure::of_nccl(nccl, "ncclCommInitRankConfig", status, None);
            if comm != Comm::NONE {
                hall.abort_stray(comm);
            }
            hall.check()?;
            return Err(error);
        }
        let is_wanted = {
            let mut hold = lock(&self.hold);
            let is_wanted = *hold == Hold::Making && hall.fate().is_none();
            *hold = if is_wanted { Hold::Made(comm) } else { Hold::Ending };
            is_wanted
        };
        if !is_wanted {
            self.end(comm);
            hall.check()?;
        }
        self.settle(comm, "ncclCommInitRankConfig", status)?;
        Ok(comm)
    }

    /// Splits the communicator, which all its ranks do; those without a colour get none.
    pub(super) fn split(&self, comm: Comm, split: &Split) -> Result<()> {
        let hall = &self.hall;
        let config = CommConfig { blocking: false, ..hall.options.config.clone() };
        let (status, child) = self.inside(comm, |nccl| nccl.split(comm, split.colour, split.key, &config))?;
        let child = Some(child).filter(|child| *child != Comm::NONE);
        let ended = self
            .settle_begun(comm, "ncclCommSplit", status)
            .and_then(|()| child.map_or(Ok(()), |child| self.settle_child(child)));
        match (child, &ended) {
            (Some(child), Ok(())) => {
                *lock(&split.child) = Some(child);
                // Who has asked for it has heard of a failure instead, and been here already or not.
                if hall.fate().is_some() {
                    hall.abort_unclaimed(&split.child);
                }
            }
            (Some(child), Err(_)) => hall.abort_stray(child),
            (None, _) => {}
        }
        ended
    }

    /// Waits while a communicator that nobody else knows of yet is in progress.
    fn settle_child(&self, child: Comm) -> Result<()> {
        let hall = &self.hall;
        let pause = Pause::begun(hall.now());
        loop {
            let seen = self.bell.count();
            hall.check()?;
            let status = hall.stack.nccl.async_error(child).unwrap_or_else(|status| status);
            match status {
                Status::SUCCESS => return Ok(()),
                Status::IN_PROGRESS => pause.wait(&*hall.stack.process, &*self.bell, seen),
                failed => {
                    // What was aborted meanwhile is not the cause.
                    hall.check()?;
                    return Err(self.failed(child, "ncclCommSplit", failed));
                }
            }
        }
    }

    /// This rank's number in the communicator, how many ranks that has, and under which key they find its id: PyTorch's own.
    fn seat(&self) -> (i32, i32, String) {
        let rank = self.hall.layout.rank();
        match self.line {
            Line::Whole => {
                let counter = self.hall.made.fetch_add(1, Ordering::Relaxed);
                (rank as i32, self.hall.layout.size() as i32, counter.to_string())
            }
            Line::Pair(low, high) => (i32::from(rank == high), 2, format!("{low}:{high}")),
        }
    }
}
