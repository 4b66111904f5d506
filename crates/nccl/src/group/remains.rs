//! What is kept until nothing can use it any more: memory that a communicator was to forget, and what one may still use that was given up.

use super::hall::lock;
use super::job::Job;
use super::lane::{Hands, Hold, Lane};
use super::memory::DeviceBuffer;
use super::pause::Pause;
use super::registered::Known;
use crate::api::{Comm, Cuda, Event, Nccl, Process, Stream};

/// Memory that a communicator is to forget, once so many jobs that came first have ended.
pub(super) type Parted<C> = (usize, Known, DeviceBuffer<C>);

/// What a communicator may still use that was given up: never freed, unless whoever ends it comes back from the library after all.
pub(super) struct Remains<C: Cuda> {
    jobs: Vec<(Job<C>, Option<Event>)>,
    parted: Vec<Parted<C>>,
    stream: Option<Stream>,
}

impl<C: Cuda> Default for Remains<C> {
    fn default() -> Remains<C> {
        Remains { jobs: Vec::new(), parted: Vec::new(), stream: None }
    }
}

impl<C: Cuda> Remains<C> {
    /// Whether the device is past all that could use it, once nothing more comes to the stream.
    fn is_past(&self, cuda: &C) -> bool {
        let is_ready = |(job, _): &(Job<C>, Option<Event>)| {
            job.flight.events.ready.is_none_or(|ready| cuda.query_event(ready) == Ok(true))
        };
        self.stream.is_none_or(|stream| cuda.query_stream(stream) == Ok(true)) && self.jobs.iter().all(is_ready)
    }

    fn free(mut self, cuda: &C) {
        drop(std::mem::take(&mut self.jobs));
        drop(std::mem::take(&mut self.parted));
        if let Some(stream) = self.stream.take() {
            let _ = cuda.destroy_stream(stream);
        }
    }
}

impl<C: Cuda> Drop for Remains<C> {
    fn drop(&mut self) {
        // The device may still use it.
        self.jobs.drain(..).for_each(std::mem::forget);
        self.parted.drain(..).for_each(std::mem::forget);
    }
}

impl<N: Nccl, C: Cuda, P: Process> Lane<N, C, P> {
    /// Has the communicator forget memory once what came before has ended; until then that is kept.
    pub(super) fn part_with(&self, known: Known, memory: DeviceBuffer<C>) {
        let due = lock(&self.queue).pushed;
        self.keep((due, known, memory));
        self.bell.ring();
    }

    /// Keeps what is to be forgotten for later.
    fn keep(&self, parted: Parted<C>) {
        let hold = lock(&self.hold);
        if *hold == Hold::Abandoned {
            lock(&self.remains).parted.push(parted);
        } else {
            lock(&self.queue).parted.push(parted);
        }
    }

    /// Has the communicator forget what is due. After a failure its memory is kept until the abort has passed, as that of operations is.
    pub(super) fn part(&self, hands: &Hands<C>) {
        if lock(&self.queue).parted.is_empty() {
            return;
        }
        let is_over = || self.hall.fate().is_none() || self.has_passed();
        if !is_over() {
            return;
        }
        let due: Vec<_> = {
            let mut queue = lock(&self.queue);
            let under_way = hands.under_way.iter().map(|(job, _)| job);
            // They end in another order than that in which they came.
            let oldest = queue.jobs.iter().chain(under_way).map(|job| job.pushed).min();
            let is_due = |due: usize| oldest.is_none_or(|oldest| due < oldest);
            queue.parted.extract_if(.., |(due, ..)| is_due(*due)).collect()
        };
        for parted in due {
            self.forget(parted.1);
            if is_over() {
                self.hall.give_back([parted.2]);
            } else {
                self.keep(parted);
            }
        }
    }

    /// Gives the communicator up.
    pub(super) fn abandon(&self) {
        {
            let mut hold = lock(&self.hold);
            if *hold == Hold::Abandoned {
                return;
            }
            *hold = Hold::Abandoned;
            lock(&self.remains).parted.append(&mut lock(&self.queue).parted);
        }
        self.hall.count_abandoned();
        self.bell.ring();
    }

    /// Leaves what is under way behind, if the communicator was given up: to whoever comes back from the library, if anybody does.
    pub(super) fn leave_behind(&self, hands: &mut Hands<C>) -> bool {
        let hold = lock(&self.hold);
        if *hold != Hold::Abandoned {
            return false;
        }
        let mut remains = lock(&self.remains);
        remains.jobs.extend(hands.under_way.drain(..));
        remains.stream = remains.stream.or(hands.stream.take());
        true
    }

    /// Aborts the communicator, and frees what was left behind meanwhile.
    pub(super) fn end(&self, comm: Comm) {
        let status = self.hall.stack.nccl.abort(comm);
        if !status.is_success() {
            log::debug!("ncclCommAbort: {status}");
        }
        self.pass_away([Hold::Ending, Hold::Abandoned]);
    }

    /// Says that there is no communicator any more, where it stood like this, and frees what was left behind.
    pub(super) fn pass_away(&self, stood: [Hold; 2]) {
        let remains = {
            let mut hold = lock(&self.hold);
            if !stood.contains(&hold) {
                return;
            }
            *hold = Hold::Gone;
            std::mem::take(&mut *lock(&self.remains))
        };
        self.bury(remains);
    }

    /// Frees what was left behind once the device is past it, in the time that an abort has.
    fn bury(&self, remains: Remains<C>) {
        let (cuda, process) = (&*self.hall.stack.cuda, &*self.hall.stack.process);
        let (pause, until) = (Pause::begun(process.now()), process.now() + self.hall.options.abort_timeout);
        loop {
            let seen = self.bell.count();
            if remains.is_past(cuda) {
                return remains.free(cuda);
            }
            if process.now() >= until {
                log::warn!("what an abandoned communicator of rank {} used is never freed", self.hall.layout.rank());
                return;
            }
            pause.wait(process, &*self.bell, seen);
        }
    }
}
