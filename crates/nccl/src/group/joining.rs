//! How a lane comes by its communicator, and how it gives it back.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use phalanx_core::store::StoreError;
use phalanx_core::{Error, Result};

use super::failure;
use super::hall::lock;
use super::job::{Job, Split};
use super::lane::{Hands, Hold, Lane, Line};
use super::pause::Pause;
use super::stack::Stack;
use crate::api::{Bell, Comm, CommConfig, Cuda, Nccl, Process, Status, UniqueId};

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
            let mut hold = lock(&self.hold);
            if *hold == Hold::Making {
                *hold = Hold::Gone;
            }
        }
        made
    }

    fn make(&self, job: &Job<C>) -> Result<Comm> {
        let (hall, nccl) = (&self.hall, &*self.hall.stack.nccl);
        let (rank, size, key) = self.seat();
        let left = job.flight.deadline.saturating_sub(hall.now());
        let store = hall.store.with_timeout(left);
        let lost = |error: StoreError| Error::setup("NCCL's id", error);
        let id = if rank == 0 {
            let id = nccl.unique_id().map_err(|status| failure::of_nccl(nccl, "ncclGetUniqueId", status, None))?;
            store.set(&key, id.0).map_err(lost)?;
            id
        } else {
            let bytes = match store.get(&key) {
                Ok(bytes) => bytes,
                // Nobody came to bring it: that is the operation's time, and who is missing is known elsewhere.
                Err(StoreError::Timeout { .. }) => return Err(hall.late(&job.flight)),
                Err(error) => return Err(lost(error)),
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
            hall.check()?;
            return Err(failure::of_nccl(nccl, "ncclCommInitRankConfig", status, None));
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
        let began = status.is_success() || status.is_in_progress();
        let child = Some(child).filter(|child| began && *child != Comm::NONE);
        let ended = self
            .settle_begun(comm, "ncclCommSplit", status)
            .and_then(|()| child.map_or(Ok(()), |child| self.settle_child(child)));
        match (child, &ended) {
            (Some(child), Ok(())) => *lock(&split.child) = Some(child),
            (Some(child), Err(_)) => {
                let status = hall.stack.nccl.abort(child);
                log::debug!("ncclCommAbort of what was split: {status}");
            }
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

    /// Brings a communicator that is whole to its end, from a thread that may stay in the library for ever: that waits for the other ranks of this
    /// host to end theirs. One that was aborted is never destroyed.
    pub(super) fn leave(&self, hands: &Hands<C>) {
        let hall = &self.hall;
        let comm = {
            let mut hold = lock(&self.hold);
            match *hold {
                Hold::Made(comm) => {
                    *hold = Hold::Ending;
                    Some(comm)
                }
                _ => None,
            }
        };
        if let Some(comm) = comm {
            let (bound, name) = (hall.options.abort_timeout, format!("nccl-end-{}", hall.layout.rank()));
            let (stack, bell, hold) = (hall.stack.clone(), Arc::clone(&self.bell), Arc::clone(&self.hold));
            let end = Ending { comm, bound };
            if hall.stack.process.spawn(name, Box::new(move || end.run(&stack, &*bell, &hold))) {
                self.await_end(hall.now() + bound);
            } else {
                log::warn!("no thread was to be had to end a communicator");
                self.abandon();
            }
        }
        if let Some(stream) = hands.stream {
            let _ = hall.stack.cuda.destroy_stream(stream);
        }
    }

    /// Waits until the communicator has been ended, or gives it up.
    fn await_end(&self, until: Duration) {
        loop {
            let seen = self.bell.count();
            if *lock(&self.hold) != Hold::Ending {
                return;
            }
            if self.hall.now() >= until {
                return self.abandon();
            }
            self.bell.wait(seen, Some(until));
        }
    }
}

/// The end of a communicator, which keeps nothing of the group: it may never come.
struct Ending {
    comm: Comm,
    bound: Duration,
}

impl Ending {
    fn run<N: Nccl, C: Cuda, P: Process>(&self, stack: &Stack<N, C, P>, bell: &dyn Bell, hold: &Mutex<Hold>) {
        let (nccl, process, comm) = (&*stack.nccl, &*stack.process, self.comm);
        if let Err(code) = stack.cuda.enter_thread(stack.device) {
            log::debug!("{} cannot be made a thread's own: {code}", stack.device);
        }
        let pause = Pause::begun(process.now());
        // The rest of the time is for what comes then.
        let until = process.now() + self.bound * 3 / 4;
        let mut status = nccl.finalize(comm);
        while status.is_in_progress() && process.now() < until {
            pause.wait(process, bell, bell.count());
            status = nccl.async_error(comm).unwrap_or_else(|status| status);
        }
        let status = if status.is_success() { nccl.destroy(comm) } else { nccl.abort(comm) };
        if !status.is_success() {
            log::debug!("a communicator's end: {status}");
        }
        {
            let mut hold = lock(hold);
            if *hold == Hold::Ending {
                *hold = Hold::Gone;
            }
        }
        bell.ring();
    }
}
