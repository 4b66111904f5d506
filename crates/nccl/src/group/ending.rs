//! How communicators come to their end, each on a thread that may stay in the library for ever: nobody waits for one longer than an abort may
//! take, or than whoever leaves the group wants to.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::hall::{Hall, is_set, lock};
use super::lane::{Hands, Hold, Lane};
use super::pause::Pause;
use super::stack::Stack;
use crate::api::{Bell, Comm, Cuda, Nccl, Process};

/// Until when somebody waits for the end of a group, on the clock of the process.
#[derive(Default)]
pub(super) struct Farewell(AtomicU64);

impl Farewell {
    /// Somebody waits until then.
    pub(super) fn extend(&self, until: Duration) {
        let nanos = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_max(nanos, Ordering::AcqRel);
    }

    /// The last moment; that of the beginning where nobody waits.
    fn until(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Acquire))
    }
}

/// How long an end may take: as long as an abort, and as long as somebody waits for the end of the group.
#[derive(Clone)]
struct Term {
    begun: Duration,
    least: Duration,
    farewell: Arc<Farewell>,
}

impl Term {
    fn until(&self) -> Duration {
        self.farewell.until().max(self.begun + self.least)
    }

    /// When the first part of it is over. The rest of the time is for what comes then.
    fn until_first(&self) -> Duration {
        self.begun + (self.until() - self.begun) * 3 / 4
    }
}

/// A communicator that is aborted and that no lane has.
pub(super) struct Stray {
    until: Duration,
    has_ended: Arc<AtomicBool>,
}

impl Stray {
    pub(super) fn has_ended(&self) -> bool {
        is_set(&self.has_ended)
    }
}

impl<N: Nccl, C: Cuda, P: Process> Hall<N, C, P> {
    /// Aborts the communicator that a split has made, unless somebody has taken it.
    pub(super) fn abort_unclaimed(&self, child: &Mutex<Option<Comm>>) {
        let unclaimed = lock(child).take();
        unclaimed.into_iter().for_each(|comm| self.abort_stray(comm));
    }

    /// Aborts a communicator that no lane has, and returns at once. If that takes too long, the watch gives it up.
    pub(super) fn abort_stray(&self, comm: Comm) {
        let (stack, watch, has_ended) = (self.stack.clone(), Arc::clone(&self.bell), Arc::new(AtomicBool::new(false)));
        let until = self.now() + self.options.abort_timeout;
        lock(&self.strays).push(Stray { until, has_ended: Arc::clone(&has_ended) });
        let work = move || {
            stack.enter_thread();
            let status = stack.nccl.abort(comm);
            if !status.is_success() {
                log::debug!("ncclCommAbort: {status}");
            }
            has_ended.store(true, Ordering::Release);
            watch.ring();
        };
        if !self.stack.process.spawn(format!("nccl-abort-{}", self.layout.rank()), Box::new(work)) {
            log::warn!("no thread was to be had to abort a communicator");
        }
    }

    /// Gives up strays whose abort takes too long.
    pub(super) fn look_after_strays(&self) {
        let now = self.now();
        let late = {
            let mut strays = lock(&self.strays);
            strays.retain(|stray| !stray.has_ended());
            strays.extract_if(.., |stray| stray.until <= now).count()
        };
        (0..late).for_each(|_| self.count_abandoned());
    }

    /// Counts a communicator that could not be ended.
    pub(super) fn count_abandoned(&self) {
        self.abandoned.fetch_add(1, Ordering::Relaxed);
        log::warn!("a communicator of rank {} could not be ended in time and is abandoned", self.layout.rank());
    }
}

impl<N: Nccl, C: Cuda, P: Process> Lane<N, C, P> {
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
            let (least, farewell) = (hall.options.abort_timeout, Arc::clone(&hall.farewell));
            let term = Term { begun: hall.now(), least, farewell };
            let (stack, bell, hold) = (hall.stack.clone(), Arc::clone(&self.bell), Arc::clone(&self.hold));
            let end = Ending { comm, term: term.clone() };
            let work = Box::new(move || end.run(&stack, &*bell, &hold));
            if hall.stack.process.spawn(format!("nccl-end-{}", hall.layout.rank()), work) {
                self.await_end(&term);
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
    fn await_end(&self, term: &Term) {
        loop {
            let seen = self.bell.count();
            if *lock(&self.hold) != Hold::Ending {
                return;
            }
            let until = term.until();
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
    term: Term,
}

impl Ending {
    fn run<N: Nccl, C: Cuda, P: Process>(&self, stack: &Stack<N, C, P>, bell: &dyn Bell, hold: &Mutex<Hold>) {
        let (nccl, process, comm) = (&*stack.nccl, &*stack.process, self.comm);
        stack.enter_thread();
        let pause = Pause::begun(process.now());
        let mut status = nccl.finalize(comm);
        while status.is_in_progress() && process.now() < self.term.until_first() {
            pause.wait(process, bell, bell.count());
            status = nccl.async_error(comm).unwrap_or_else(|status| status);
        }
        let status = if status.is_success() { nccl.destroy(comm) } else { nccl.abort(comm) };
        if !status.is_success() {
            log::debug!("a communicator's end: {status}");
        }
        {
            let mut hold = lock(hold);
            if matches!(*hold, Hold::Ending | Hold::Abandoned) {
                *hold = Hold::Gone;
            }
        }
        bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_may_take_as_long_as_an_abort_and_as_long_as_somebody_waits() {
        let seconds = Duration::from_secs;
        let farewell = Arc::new(Farewell::default());
        let term = Term { begun: seconds(100), least: seconds(4), farewell: Arc::clone(&farewell) };
        assert_eq!((term.until(), term.until_first()), (seconds(104), seconds(103)));
        farewell.extend(seconds(102));
        assert_eq!(term.until(), seconds(104));
        farewell.extend(seconds(140));
        farewell.extend(seconds(120));
        assert_eq!((term.until(), term.until_first()), (seconds(140), seconds(130)));
        farewell.extend(Duration::MAX);
        assert!(term.until_first() > seconds(1_000_000));
    }
}
