//! One operation between its caller, who waits, the worker that begins and observes it, and the watch that ends it in time.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use phalanx_core::backend::{Finished, Pending};
use phalanx_core::{Call, Chain, Error, Op, OpKind, Result, Stuck, Timeout};

use super::order::Place;
use super::standing::{Message, Standing};
use crate::api::{Bell, Event};

/// One operation, or several that travel as one.
pub(super) struct Flight {
    pub(super) bell: Arc<dyn Bell>,
    pub(super) op: OpKind,
    pub(super) sequence: u32,
    pub(super) after: Duration,
    /// When it must have ended.
    pub(super) deadline: Duration,
    /// The other ranks of its messages, each once.
    pub(super) peers: Vec<usize>,
    /// Which message between the two it is that goes alone, once it has its place among them.
    pub(super) turn: OnceLock<u32>,
    /// The messages of a batch, once they are counted.
    pub(super) batch: OnceLock<Vec<Message>>,
    /// Its place among what its thread has begun in all groups, if it has one.
    pub(super) place: OnceLock<Arc<Place>>,
    /// What stands for its end on the stream, what the stream waits for before it, and for its begin where time is kept.
    pub(super) events: Events,
    /// Where they go when nobody has the flight any more.
    bin: Bin,
    state: Mutex<State>,
}

/// Events that can be used again.
pub(super) type Bin = Arc<Mutex<Vec<Event>>>;

/// The events of one operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Events {
    pub(super) ready: Option<Event>,
    pub(super) start: Option<Event>,
    pub(super) end: Event,
}

struct State {
    stage: Stage,
    result: Option<Result<Finished>>,
    calls: Vec<Call>,
    wakers: Vec<Waker>,
}

/// How far an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The worker has not begun it.
    Queued,
    /// It is on its stream, and so is the event of its end.
    Launched,
    /// Its end was observed, or it failed.
    Done,
}

impl Flight {
    /// An operation of these calls, the first of which gives its name and time.
    pub(super) fn new(calls: Vec<Call>, bell: Arc<dyn Bell>, now: Duration, (events, bin): (Events, Bin)) -> Flight {
        let first = &calls[0];
        let mut peers: Vec<usize> = calls.iter().filter_map(peer).collect();
        peers.sort_unstable();
        peers.dedup();
        Flight {
            bell,
            op: first.op.kind(),
            sequence: first.sequence,
            after: first.timeout,
            deadline: now.saturating_add(first.timeout),
            peers,
            turn: OnceLock::new(),
            batch: OnceLock::new(),
            place: OnceLock::new(),
            events,
            bin,
            state: Mutex::new(State { stage: Stage::Queued, result: None, calls, wakers: Vec::new() }),
        }
    }

    /// How far it is, with all that whoever brought it there has seen.
    pub(super) fn stage(&self) -> Stage {
        self.bell.count();
        self.lock().stage
    }

    /// The turn has come.
    pub(super) fn start(&self, now: Duration) {
        self.lock().calls.iter().for_each(|call| call.start(now));
    }

    /// Passes on what the calling thread has seen, to whoever looks at the flight after this.
    pub(super) fn pass_on(&self) {
        self.bell.ring();
    }

    /// Whether all that its thread has begun before is on its stream, or has failed. If not, the bell is rung when that may be so.
    pub(super) fn has_come(&self, bell: &Arc<dyn Bell>) -> bool {
        self.place.get().is_none_or(|place| place.has_come(bell))
    }

    /// Takes its place among what its thread has begun. If it has ended by now, its lane may never look at it, so it lets others pass here.
    pub(super) fn take_place(&self, place: Arc<Place>) {
        if self.place.set(place).is_ok() && self.stage() == Stage::Done {
            self.let_pass();
        }
    }

    /// Lets what its thread has begun after it have its turn.
    fn let_pass(&self) {
        self.place.get().iter().for_each(|place| place.pass());
    }

    /// It is on its stream.
    pub(super) fn launched(&self) {
        self.pass_on();
        let is_news = {
            let mut state = self.lock();
            let is_news = state.stage == Stage::Queued;
            if is_news {
                state.stage = Stage::Launched;
            }
            is_news
        };
        if is_news {
            self.bell.ring();
        }
        self.let_pass();
    }

    /// It has ended; the first end stays.
    pub(super) fn finish(&self, now: Duration, result: Result<Finished>) {
        self.pass_on();
        let has_failed = result.is_err();
        let wakers = {
            let mut state = self.lock();
            if state.stage == Stage::Done {
                return;
            }
            state.stage = Stage::Done;
            for call in &state.calls {
                call.end(|| now, result.as_ref().err());
            }
            state.result = Some(result);
            std::mem::take(&mut state.wakers)
        };
        // Once the end is known: who takes a place after that sees it, and who took one before has it here.
        match self.place.get() {
            Some(place) if has_failed => place.fail(now),
            Some(place) => place.pass(),
            None => {}
        }
        self.bell.ring();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Has this woken at the end.
    pub(super) fn wake(&self, waker: &Waker) {
        let mut state = self.lock();
        if !state.wakers.iter().any(|known| known.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
    }

    /// Whether it needs what a rank has still to call, as far as that one tells.
    pub(super) fn needs(&self, peer: usize, own: usize, standing: &Standing) -> bool {
        if self.peers.is_empty() {
            return standing.called <= self.sequence;
        }
        let with = |message: &&Message| usize::try_from(message.peer) == Ok(peer);
        match self.batch.get().filter(|batch| !batch.is_empty()) {
            Some(batch) => batch.iter().filter(with).any(|message| !standing.has_met(own, message)),
            None => self.peers.contains(&peer),
        }
    }

    /// The error of having taken too long, waiting for these, and how it came to.
    pub(super) fn timed_out(&self, stuck: Vec<Stuck>, chain: Chain) -> Error {
        let (op, sequence, after) = (self.op, self.sequence, self.after);
        Error::Timeout(Box::new(Timeout { op, sequence, after, stuck, chain }))
    }

    /// Why it failed, if it has and nobody has taken that.
    pub(super) fn error(&self) -> Option<Error> {
        self.bell.count();
        self.lock().result.as_ref()?.as_ref().err().cloned()
    }

    fn take(&self) -> Option<Result<Finished>> {
        self.bell.count();
        let mut state = self.lock();
        match state.stage {
            Stage::Done => Some(state.result.take().unwrap_or_else(|| Ok(Finished::default()))),
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let Events { ready, start, end } = self.events;
        let all = ready.into_iter().chain(start).chain([end]);
        self.bin.lock().unwrap_or_else(PoisonError::into_inner).extend(all);
    }
}

/// An operation in its caller's hands.
pub(super) struct Waiting {
    pub(super) flight: Arc<Flight>,
    pub(super) clock: Clock,
    /// Ends it where the watch has not.
    pub(super) late: Late,
}

/// Ends an operation that is late.
pub(super) type Late = Box<dyn Fn(&Arc<Flight>) + Send + Sync>;

/// The time of the process.
pub(super) type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

impl Waiting {
    /// Waits until the operation is at least that far, at most until a moment.
    pub(super) fn until(&self, is_there: impl Fn(Stage) -> bool, limit: Option<Duration>) -> bool {
        let last = self.flight.deadline.saturating_add(SLACK);
        loop {
            let seen = self.flight.bell.count();
            if is_there(self.flight.stage()) {
                return true;
            }
            let now = (self.clock)();
            if limit.is_some_and(|limit| limit <= now) {
                return false;
            }
            if last <= now {
                (self.late)(&self.flight);
                return true;
            }
            self.flight.bell.wait(seen, Some(limit.map_or(last, |limit| limit.min(last))));
        }
    }
}

impl Waiting {
    /// Waits for the end, at most so long.
    pub(super) fn reach_end(&self, limit: Option<Duration>) {
        let limit = limit.map(|limit| (self.clock)().saturating_add(limit));
        self.until(|stage| stage == Stage::Done, limit);
    }
}

impl Pending for Waiting {
    fn is_done(&self) -> bool {
        self.flight.stage() == Stage::Done
    }

    fn poll(&mut self, waker: &Waker) -> Option<Result<Finished>> {
        self.flight.wake(waker);
        self.flight.take()
    }

    fn wait(&mut self, limit: Option<Duration>) -> Option<Result<Finished>> {
        self.reach_end(limit);
        self.flight.take()
    }
}

/// An operation that failed before it began.
pub(super) struct Refused(pub(super) Option<Error>);

impl Pending for Refused {
    fn is_done(&self) -> bool {
        true
    }

    fn poll(&mut self, _: &Waker) -> Option<Result<Finished>> {
        self.0.take().map(Err)
    }

    fn wait(&mut self, _: Option<Duration>) -> Option<Result<Finished>> {
        self.0.take().map(Err)
    }
}

/// The other rank of a message.
pub(super) fn peer(call: &Call) -> Option<usize> {
    match call.op {
        Op::Send { to, .. } => Some(to),
        Op::Recv { from, .. } => from,
        _ => None,
    }
}

/// How much later than the watch a caller ends an operation itself.
const SLACK: Duration = Duration::from_millis(250);
