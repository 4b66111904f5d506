//! A lane: one communicator and the thread that makes every call of NCCL for it, one operation after the other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use phalanx_core::{Error, Result};

use super::failure;
use super::hall::{Hall, is_set, lock};
use super::job::{Errand, Job};
use super::memory::DeviceBuffer;
use super::plan::{CallKind, NcclCall, Step};
use super::registered::Known;
use crate::api::{Bell, Comm, Cuda, Event, Nccl, Process, Stream};

/// Whose communicator a lane has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// All ranks'.
    Whole,
    /// That of two ranks, the lower first, for messages between them.
    Pair(usize, usize),
}

impl Line {
    /// A call with the ranks as the communicator numbers them.
    pub(super) fn seen_by(self, call: &NcclCall) -> NcclCall {
        let Line::Pair(low, _) = self else { return *call };
        let number = |peer: i32| i32::from(usize::try_from(peer) != Ok(low));
        let kind = match call.kind {
            CallKind::Send(peer) => CallKind::Send(number(peer)),
            CallKind::Recv(peer) => CallKind::Recv(number(peer)),
            kind => kind,
        };
        NcclCall { kind, ..*call }
    }
}

/// One communicator and its thread.
pub(super) struct Lane<N, C: Cuda, P> {
    pub(super) hall: Arc<Hall<N, C, P>>,
    pub(super) line: Line,
    pub(super) bell: Arc<dyn Bell>,
    queue: Mutex<Queue<C>>,
    pub(super) hold: Mutex<Hold>,
    /// Whether the thread is inside a call for the communicator.
    is_inside: AtomicBool,
    has_ended: AtomicBool,
}

/// What waits for its turn, and how many messages have had a place in it.
struct Queue<C: Cuda> {
    jobs: VecDeque<Job<C>>,
    messages: u32,
    /// How many jobs have come.
    pushed: usize,
    /// What the communicator is to forget, once so many jobs have ended.
    parted: Vec<(usize, Known, DeviceBuffer<C>)>,
}

/// The communicator of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Nobody has asked for it yet.
    None,
    /// It is being made, and the library has not given a handle.
    Making,
    /// There is one.
    Made(Comm),
    /// Somebody aborts it.
    Aborting,
    /// There is none, and there will be none.
    Gone,
    /// It could not be aborted; whatever it uses is never freed.
    Abandoned,
}

/// What a lane's thread has in its hands.
pub(super) struct Hands<C: Cuda> {
    pub(super) stream: Option<Stream>,
    /// Jobs, and the events after which nothing uses their memory any more.
    under_way: VecDeque<(Job<C>, Event)>,
    /// How many jobs have ended.
    ended: usize,
}

impl<N: Nccl, C: Cuda, P: Process> Lane<N, C, P> {
    /// The lane of a line, which is made when it is first asked for.
    pub(super) fn of(hall: &Arc<Hall<N, C, P>>, line: Line) -> Result<Arc<Lane<N, C, P>>> {
        Lane::with(hall, line, Hold::None)
    }

    /// The same, with a communicator that is there already.
    pub(super) fn with(hall: &Arc<Hall<N, C, P>>, line: Line, held: Hold) -> Result<Arc<Lane<N, C, P>>> {
        let bell = hall.stack.process.bell();
        let lane = {
            let mut lanes = lock(&hall.lanes);
            if let Some(lane) = lanes.iter().find(|lane| lane.line == line) {
                return Ok(Arc::clone(lane));
            }
            hall.check()?;
            let [is_inside, has_ended] = [false; 2].map(AtomicBool::new);
            let queue = Mutex::new(Queue { jobs: VecDeque::new(), messages: 0, pushed: 0, parted: Vec::new() });
            let hold = Mutex::new(held);
            let lane = Arc::new(Lane { hall: Arc::clone(hall), line, bell, queue, hold, is_inside, has_ended });
            lanes.push(Arc::clone(&lane));
            lane
        };
        let (worker, name) = (Arc::clone(&lane), format!("nccl-{}", hall.layout.rank()));
        if !hall.stack.process.spawn(name, Box::new(move || worker.work())) {
            return Err(Error::setup("NCCL", "no thread is to be had for a communicator"));
        }
        Ok(lane)
    }

    pub(super) fn push(&self, job: Job<C>) {
        job.flight.pass_on();
        {
            let mut queue = lock(&self.queue);
            if matches!(self.line, Line::Pair(..)) {
                let _ = job.flight.turn.set(queue.messages);
                queue.messages = queue.messages.wrapping_add(1);
            }
            queue.pushed += 1;
            queue.jobs.push_back(job);
        }
        self.bell.ring();
    }

    /// Has the communicator forget memory once what came before has ended; until then that is kept.
    pub(super) fn part_with(&self, known: Known, memory: DeviceBuffer<C>) {
        if self.is_abandoned() {
            // See `Hold::Abandoned`.
            std::mem::forget(memory);
            return;
        }
        {
            let mut queue = lock(&self.queue);
            let due = queue.pushed;
            queue.parted.push((due, known, memory));
        }
        self.bell.ring();
    }

    pub(super) fn ring(&self) {
        self.bell.ring();
    }

    /// Whether its thread has ended.
    pub(super) fn has_ended(&self) -> bool {
        is_set(&self.has_ended)
    }

    /// Whether an abort of it has come to its end, or there was nothing to abort.
    pub(super) fn is_quiet(&self) -> bool {
        !matches!(*lock(&self.hold), Hold::Making | Hold::Made(_) | Hold::Aborting)
    }

    /// Calls the library for the communicator, unless somebody aborts that: an abort begins when such a call has ended, or has not for so
    /// long that it must be stuck.
    pub(super) fn inside<T>(&self, comm: Comm, call: impl FnOnce(&N) -> T) -> Result<T> {
        {
            let hold = lock(&self.hold);
            if *hold != Hold::Made(comm) {
                drop(hold);
                self.hall.check()?;
                return Err(Error::aborted("the communicator is gone"));
            }
            self.is_inside.store(true, Ordering::Release);
        }
        let answer = call(&self.hall.stack.nccl);
        self.is_inside.store(false, Ordering::Release);
        if self.hall.fate().is_some() {
            self.bell.ring();
        }
        Ok(answer)
    }

    /// Aborts the communicator, on a thread that may stay in the library for ever. Who makes one does it itself.
    pub(super) fn abort(&self) {
        self.hall.enter_thread();
        let until = self.hall.now() + self.hall.options.abort_timeout / 4;
        while !self.hall.has_quiet_children() && self.hall.now() < until {
            self.bell.wait(self.bell.count(), Some(self.hall.now() + GLANCE));
        }
        let comm = {
            let mut hold = lock(&self.hold);
            match *hold {
                Hold::Made(comm) => {
                    *hold = Hold::Aborting;
                    Some(comm)
                }
                Hold::None => {
                    *hold = Hold::Gone;
                    None
                }
                _ => None,
            }
        };
        if let Some(comm) = comm {
            let until = self.hall.now() + self.hall.options.abort_timeout / 4;
            // See `inside`.
            while is_set(&self.is_inside) && self.hall.now() < until {
                let seen = self.bell.count();
                if is_set(&self.is_inside) {
                    self.bell.wait(seen, Some(until));
                }
            }
            self.end(comm);
        }
        self.bell.ring();
        self.hall.bell.ring();
    }

    /// Gives the communicator up.
    pub(super) fn abandon(&self) {
        *lock(&self.hold) = Hold::Abandoned;
        std::mem::take(&mut lock(&self.queue).parted).into_iter().for_each(std::mem::forget);
        self.hall.abandoned.fetch_add(1, Ordering::Relaxed);
        log::warn!("a communicator of rank {} could not be aborted and is abandoned", self.hall.layout.rank());
        self.bell.ring();
    }

    /// Whether it was given up.
    fn is_abandoned(&self) -> bool {
        *lock(&self.hold) == Hold::Abandoned
    }

    pub(super) fn end(&self, comm: Comm) {
        let status = self.hall.stack.nccl.abort(comm);
        if !status.is_success() {
            log::debug!("ncclCommAbort: {status}");
        }
        let mut hold = lock(&self.hold);
        if *hold == Hold::Aborting {
            *hold = Hold::Gone;
        }
    }

    /// The thread of the lane.
    fn work(self: Arc<Lane<N, C, P>>) {
        self.hall.enter_thread();
        let mut hands = Hands { stream: None, under_way: VecDeque::new(), ended: 0 };
        loop {
            let seen = self.bell.count();
            self.observe(&mut hands);
            self.part(&hands);
            let has_failed = self.hall.fate().is_some();
            let next = if has_failed { lock(&self.queue).jobs.pop_front() } else { self.next() };
            let waits = !hands.under_way.is_empty();
            match next {
                Some(job) => self.take_up(job, &mut hands),
                None if is_set(&self.hall.is_closing) && !waits && (!has_failed || self.is_quiet()) => break,
                None => {
                    self.ask();
                    let pause = if waits { GLANCE } else { self.hall.options.heartbeat };
                    self.bell.wait(seen, (!has_failed || waits).then(|| self.hall.now() + pause));
                }
            }
        }
        self.leave(&hands);
        self.has_ended.store(true, Ordering::Release);
        self.hall.bell.ring();
    }

    /// Looks which operations have ended, in their order.
    fn observe(&self, hands: &mut Hands<C>) {
        let hall = &self.hall;
        while let Some((job, last)) = hands.under_way.front_mut() {
            match hall.stack.cuda.query_event(*last) {
                Ok(false) if self.is_abandoned() => {
                    // The device may still use it, so it must never be freed.
                    hands.under_way.drain(..).for_each(std::mem::forget);
                    return;
                }
                Ok(false) => return,
                Ok(true) if hall.fate().is_none() => {
                    let result = job.held.settle();
                    if let Some((digest, print)) = job.held.digest().zip(job.prints.first()) {
                        hall.note_digest(print.sequence, digest);
                    }
                    job.flight.finish(hall.now(), result);
                }
                Ok(true) => {}
                Err(code) => {
                    let error = failure::of_cuda(&*hall.stack.cuda, "query_event", code);
                    let flight = Arc::clone(&job.flight);
                    hall.fail(error, Some(&flight));
                }
            }
            hands.under_way.pop_front();
            hands.ended += 1;
        }
    }

    /// Waits until all operations have ended.
    fn finish_all(&self, hands: &mut Hands<C>) -> Result<()> {
        loop {
            let seen = self.bell.count();
            self.observe(hands);
            self.hall.check()?;
            if hands.under_way.is_empty() {
                return Ok(());
            }
            self.bell.wait(seen, Some(self.hall.now() + GLANCE));
        }
    }

    /// Has the communicator forget what is due.
    fn part(&self, hands: &Hands<C>) {
        let due: Vec<_> = lock(&self.queue).parted.extract_if(.., |(due, ..)| *due <= hands.ended).collect();
        due.iter().for_each(|(_, known, _)| self.forget(*known));
    }

    /// The next job: collectives in the order of their numbers, which the threads of a program may bring in another.
    fn next(&self) -> Option<Job<C>> {
        let mut queue = lock(&self.queue);
        let mut turns = lock(&self.hall.turns);
        let at =
            queue.jobs.iter().position(|job| job.prints.first().is_none_or(|first| turns.is_next(first.sequence)))?;
        let job = queue.jobs.remove(at)?;
        job.prints.iter().for_each(|print| turns.pass(print.sequence));
        Some(job)
    }

    /// Asks the communicator whether something has gone wrong since its last call.
    fn ask(&self) {
        let Hold::Made(comm) = *lock(&self.hold) else { return };
        let hall = &self.hall;
        let Ok(Ok(status)) = self.inside(comm, |nccl| nccl.async_error(comm)) else { return };
        if !status.is_success() && !status.is_in_progress() {
            let error = self.failed(comm, "ncclCommGetAsyncError", status);
            if self.is_anothers(status) {
                hall.suspect(error);
            } else {
                hall.fail(error, hall.under_way().first());
            }
        }
    }

    /// Begins a job.
    fn take_up(&self, job: Job<C>, hands: &mut Hands<C>) {
        let hall = &self.hall;
        job.flight.stage();
        let begun = hall.check().and_then(|()| self.begin(&job, hands));
        let events = job.flight.events;
        let mut last = Some(events.end);
        match begun {
            Ok(()) => job.flight.launched(),
            Err(error) => {
                hall.fail(error, Some(&job.flight));
                // Part of it may be on the stream, or still to come before it: its memory is kept until that has passed.
                let cuda = &hall.stack.cuda;
                let before = hands.stream.zip(events.ready).map(|(stream, ready)| cuda.wait_event(stream, ready));
                let marked =
                    hands.stream.map(|stream| before.unwrap_or(Ok(())).and(cuda.record_event(events.end, stream)));
                if !matches!(marked, Some(Ok(()))) {
                    last = events.ready;
                }
            }
        }
        match last {
            Some(last) => hands.under_way.push_back((job, last)),
            None => hands.ended += 1,
        }
    }

    fn begin(&self, job: &Job<C>, hands: &mut Hands<C>) -> Result<()> {
        let (hall, cuda) = (&self.hall, &self.hall.stack.cuda);
        if hall.options.is_strict {
            hall.meet(job)?;
        }
        let stream = match hands.stream {
            Some(stream) => stream,
            None => {
                let made = cuda.create_stream(hall.stack.device, hall.options.is_high_priority);
                *hands.stream.insert(hall.cuda("create_stream", made)?)
            }
        };
        let comm = self.joined(job)?;
        match &job.errand {
            Some(Errand::Split(split)) => {
                self.finish_all(hands)?;
                self.split(comm, split)?;
            }
            Some(Errand::Introduce(introduction)) => self.introduce(comm, introduction)?,
            None => {}
        }
        let events = job.flight.events;
        if let Some(ready) = events.ready {
            hall.cuda("wait_event", cuda.wait_event(stream, ready))?;
        }
        if let Some(start) = events.start {
            hall.cuda("record_event", cuda.record_event(start, stream))?;
        }
        job.flight.start(hall.now());
        // Looked at where copies from the host have come, and before anything goes to others.
        let mut checks = &job.held.checks[..];
        for step in &job.steps {
            match step {
                Step::Copy { to, from } => hall.cuda("copy", cuda.copy(*to, *from, stream))?,
                Step::Calls(calls) => {
                    self.check_nan(std::mem::take(&mut checks), stream, events.end)?;
                    self.call(comm, calls, stream)?;
                }
            }
        }
        hall.cuda("record_event", cuda.record_event(events.end, stream))
    }
}

/// How often a lane looks after what is under way.
pub(super) const GLANCE: Duration = Duration::from_micros(100);
