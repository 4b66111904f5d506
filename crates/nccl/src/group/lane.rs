//! A lane: one communicator and the thread that makes every call of NCCL for it, one operation after the other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use phalanx_core::{Error, Result};

use super::failure;
use super::flight::Flight;
use super::hall::{Hall, is_set, lock};
use super::job::{Errand, Job};
use super::order::{Begun, Company, Place};
use super::pause::Pause;
use super::plan::{CallKind, NcclCall, Step};
use super::remains::{Parted, Remains};
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
    pub(super) queue: Mutex<Queue<C>>,
    /// What was under way when the communicator was given up.
    pub(super) remains: Mutex<Remains<C>>,
    /// Shared with whoever brings the communicator to its end, who may stay in the library for ever and keeps nothing else of the lane.
    pub(super) hold: Arc<Mutex<Hold>>,
    /// Whether the thread is inside a call for the communicator.
    is_inside: AtomicBool,
    /// Whether all has ended that will, and only the communicator is still there.
    has_emptied: AtomicBool,
    /// Whether the thread is gone, and has nothing of the group any more.
    has_ended: Arc<AtomicBool>,
}

/// What waits for its turn, and how many messages have had a place in it.
pub(super) struct Queue<C: Cuda> {
    pub(super) jobs: VecDeque<Job<C>>,
    messages: u32,
    /// How many jobs have come.
    pub(super) pushed: usize,
    pub(super) parted: Vec<Parted<C>>,
    /// Whether the lane has nothing more to do and looks no more.
    is_closed: bool,
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
    /// Somebody brings it to its end.
    Ending,
    /// There is none, and there will be none.
    Gone,
    /// It could not be ended in time; whatever it uses is not freed before it has been after all.
    Abandoned,
}

/// What a lane's thread has in its hands.
pub(super) struct Hands<C: Cuda> {
    pub(super) stream: Option<Stream>,
    /// Jobs, and the events after which nothing uses their memory any more; none yet of those that have failed or came after a failure.
    pub(super) under_way: VecDeque<(Job<C>, Option<Event>)>,
    /// Since a job was begun or has ended.
    pause: Pause,
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
            // The watch may be past the lanes there are, and nobody would end this one.
            if is_set(&hall.is_closing) {
                return Err(left());
            }
            let [is_inside, has_emptied] = [false; 2].map(AtomicBool::new);
            let (jobs, parted) = (VecDeque::new(), Vec::new());
            let queue = Mutex::new(Queue { jobs, messages: 0, pushed: 0, parted, is_closed: false });
            let (hall, hold, has_ended) = (Arc::clone(hall), Arc::new(Mutex::new(held)), Arc::default());
            let remains = Mutex::default();
            let lane = Arc::new(Lane { hall, line, bell, queue, remains, hold, is_inside, has_emptied, has_ended });
            lanes.push(Arc::clone(&lane));
            lane
        };
        let (worker, name) = (Arc::clone(&lane), format!("nccl-{}", hall.layout.rank()));
        let (ended, watch) = (Arc::clone(&lane.has_ended), Arc::clone(&hall.bell));
        let work = move || {
            worker.work();
            ended.store(true, Ordering::Release);
            watch.ring();
        };
        if !hall.stack.process.spawn(name, Box::new(work)) {
            // Nobody waits for it then.
            lock(&hall.lanes).retain(|other| !Arc::ptr_eq(other, &lane));
            return Err(Error::setup("NCCL", "no thread is to be had for a communicator"));
        }
        Ok(lane)
    }

    /// Queues a job. Whoever leaves the group meanwhile may have the lane end before it comes: it has failed then, and lets those behind it pass.
    pub(super) fn push(&self, mut job: Job<C>) -> Result<()> {
        job.flight.pass_on();
        // Messages, alone or together, come in an order of their own on each rank.
        if !job.prints.is_empty() {
            let group: Weak<dyn Company> = Arc::<Hall<N, C, P>>::downgrade(&self.hall);
            let begun = Begun { group, op: job.flight.op, sequence: job.flight.sequence };
            job.flight.take_place(Place::next(self.hall.stack.device, begun));
        }
        let refused = {
            let mut queue = lock(&self.queue);
            if queue.is_closed {
                Some(job)
            } else {
                if matches!(self.line, Line::Pair(..)) {
                    let _ = job.flight.turn.set(queue.messages);
                    queue.messages = queue.messages.wrapping_add(1);
                }
                queue.pushed += 1;
                job.pushed = queue.pushed;
                queue.jobs.push_back(job);
                None
            }
        };
        if let Some(job) = refused {
            job.flight.finish(self.hall.now(), Err(left()));
            return Err(left());
        }
        self.bell.ring();
        Ok(())
    }

    pub(super) fn ring(&self) {
        self.bell.ring();
    }

    /// Whether nothing is queued or under way any more, and nothing will be.
    pub(super) fn has_emptied(&self) -> bool {
        is_set(&self.has_emptied)
    }

    /// Whether its thread has ended.
    pub(super) fn has_ended(&self) -> bool {
        is_set(&self.has_ended)
    }

    /// Whether an abort of it has come to its end, or is waited for no more, or there was nothing to abort.
    pub(super) fn is_quiet(&self) -> bool {
        self.has_passed() || *lock(&self.hold) == Hold::Abandoned
    }

    /// Whether an abort of it has come to its end, or there was nothing to abort.
    pub(super) fn has_passed(&self) -> bool {
        matches!(*lock(&self.hold), Hold::None | Hold::Gone)
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
        self.hall.stack.enter_thread();
        let until = self.hall.now() + self.hall.options.abort_timeout / 4;
        while !self.hall.has_quiet_children() && self.hall.now() < until {
            self.bell.wait(self.bell.count(), Some(self.hall.now() + GLANCE));
        }
        let comm = {
            let mut hold = lock(&self.hold);
            match *hold {
                Hold::Made(comm) => {
                    *hold = Hold::Ending;
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

    /// The thread of the lane.
    fn work(self: Arc<Lane<N, C, P>>) {
        let hall = &self.hall;
        hall.stack.enter_thread();
        let pause = Pause::begun(hall.now());
        let mut hands = Hands { stream: None, under_way: VecDeque::new(), pause };
        loop {
            let seen = self.bell.count();
            let has_failed = hall.fate().is_some();
            // As it is before the lane looks: what passes meanwhile, it looks at once more.
            let is_settled = !has_failed || self.is_quiet();
            self.observe(&mut hands);
            self.part(&hands);
            let next = if has_failed { lock(&self.queue).jobs.pop_front() } else { self.next() };
            let waits = !hands.under_way.is_empty();
            match next {
                Some(job) => self.take_up(job, &mut hands),
                None if is_set(&hall.is_closing) && !waits && is_settled && self.closes() => break,
                None => self.rest(&hands, seen, has_failed),
            }
        }
        self.has_emptied.store(true, Ordering::Release);
        hall.bell.ring();
        self.leave(&hands);
    }

    /// Closes the queue if nothing waits for its turn, and the communicator knows nothing any more that it was to forget; whether it is closed.
    fn closes(&self) -> bool {
        let mut queue = lock(&self.queue);
        queue.is_closed = queue.jobs.is_empty() && queue.parted.is_empty();
        queue.is_closed
    }

    /// Waits for what comes next: an end, a job, or that the communicator is quiet.
    fn rest(&self, hands: &Hands<C>, seen: u64, has_failed: bool) {
        let process = &*self.hall.stack.process;
        if hands.under_way.is_empty() {
            self.ask();
            let next = (!has_failed).then(|| process.now() + self.hall.options.heartbeat);
            return self.bell.wait(seen, next);
        }
        if !hands.pause.is_short(process.now()) {
            self.ask();
        }
        hands.pause.wait(process, &*self.bell, seen);
    }

    /// Looks which operations have ended, in their order. After a failure a thread of the library may still put on the stream what was called,
    /// until the abort has joined it: nothing has ended before, whatever the stream says.
    fn observe(&self, hands: &mut Hands<C>) {
        let hall = &self.hall;
        let has_failed = hall.fate().is_some();
        if has_failed && (self.leave_behind(hands) || !self.has_passed()) {
            return;
        }
        while let Some((job, last)) = hands.under_way.front_mut() {
            let Some(event) = last.or_else(|| self.mark_end(job, hands.stream)) else {
                self.forget_first(hands);
                continue;
            };
            *last = Some(event);
            match hall.stack.cuda.query_event(event) {
                Ok(false) => return,
                Ok(true) if hall.fate().is_none() => {
                    let result = job.held.settle();
                    if let Some((digest, print)) = job.held.digest().zip(job.prints.first()) {
                        hall.note_digest(print.sequence, digest);
                    }
                    // First, so that whoever waits for the end and then needs memory finds what is to be freed.
                    hall.hand_over(std::mem::take(&mut job.held.device));
                    job.flight.finish(hall.now(), result);
                }
                Ok(true) if has_failed => {}
                // The failure came meanwhile.
                Ok(true) => return,
                Err(code) => {
                    let error = failure::of_cuda(&*hall.stack.cuda, "query_event", code);
                    let flight = Arc::clone(&job.flight);
                    hall.fail(error, Some(&flight));
                    if !has_failed {
                        return;
                    }
                }
            }
            self.forget_first(hands);
        }
    }

    /// The first job has ended, and what it held is nobody's.
    fn forget_first(&self, hands: &mut Hands<C>) {
        if let Some((job, _)) = hands.under_way.pop_front() {
            self.hall.give_back(job.held.device);
        }
        hands.pause = Pause::begun(self.hall.now());
    }

    /// The event after which nothing uses the memory of a job that was not begun as it should: all that is on the stream by now, and what was to
    /// come before it. None where there is neither.
    fn mark_end(&self, job: &Job<C>, stream: Option<Stream>) -> Option<Event> {
        let (cuda, events) = (&self.hall.stack.cuda, job.flight.events);
        let before = stream.zip(events.ready).map_or(Ok(()), |(stream, ready)| cuda.wait_event(stream, ready));
        let marked = stream.map(|stream| before.and_then(|()| cuda.record_event(events.end, stream)));
        if matches!(marked, Some(Ok(()))) { Some(events.end) } else { events.ready }
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
            hands.pause.wait(&*self.hall.stack.process, &*self.bell, seen);
        }
    }

    /// The next job: collectives in the order of their numbers, which the threads of a program may bring in another, and each once what its
    /// thread has begun before it in other groups is on its stream.
    fn next(&self) -> Option<Job<C>> {
        let mut queue = lock(&self.queue);
        let mut turns = lock(&self.hall.turns);
        let at =
            queue.jobs.iter().position(|job| job.prints.first().is_none_or(|first| turns.is_next(first.sequence)))?;
        if !queue.jobs[at].flight.has_come(&self.bell) {
            return None;
        }
        let job = queue.jobs.remove(at)?;
        job.prints.iter().for_each(|print| turns.pass(print.sequence));
        Some(job)
    }

    /// Whether messages wait in the queue behind a collective of this number, which came before them.
    pub(super) fn has_behind(&self, number: u32, messages: &Flight) -> bool {
        let queue = lock(&self.queue);
        let is_it = |job: &&Job<C>| job.prints.first().is_some_and(|first| first.sequence == number);
        let behind = queue.jobs.iter().skip_while(|job| !is_it(job)).skip(1);
        behind.filter(|job| job.prints.is_empty()).any(|job| std::ptr::eq(&*job.flight, messages))
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
        let last = match hall.check().and_then(|()| self.begin(&job, hands)) {
            Ok(()) => {
                job.flight.launched();
                Some(job.flight.events.end)
            }
            Err(error) => {
                hall.fail(error, Some(&job.flight));
                // Part of it may be on the stream, or still to come there: its end is marked once nothing more comes.
                None
            }
        };
        hands.under_way.push_back((job, last));
        hands.pause = Pause::begun(hall.now());
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

/// How often an abort looks whether others have ended that it comes after.
const GLANCE: Duration = Duration::from_micros(100);

/// What comes to a group that this rank has left.
pub(super) fn left() -> Error {
    Error::aborted("this rank has left the group")
}

#[cfg(test)]
mod tests;
