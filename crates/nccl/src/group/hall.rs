//! What all parts of one rank's group have in common: its libraries, its lanes, what is under way, and the first failure.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::ThreadId;
use std::time::Duration;

use phalanx_core::backend::Numbers;
use phalanx_core::store::Store;
use phalanx_core::{Call, Error, Fingerprint, Layout, OpKind, Result};

use super::ending::{Farewell, Stray};
use super::failure;
use super::flight::{Bin, Clock, Events, Flight, Stage, Waiting, peer};
use super::freeing::Freeing;
use super::job::Job;
use super::lane::{Lane, Line};
use super::options::NcclOptions;
use super::stack::Stack;
use super::staging::Staging;
use super::standing::{Message, Met, Standing};
use crate::api::{Bell, Cuda, Event, EventKind, Nccl, Process, UniqueId, Version};
pub(super) use crate::register::locked as lock;

/// One rank's group.
pub(super) struct Hall<N, C: Cuda, P> {
    pub(super) stack: Stack<N, C, P>,
    pub(super) layout: Layout,
    pub(super) store: Store,
    pub(super) options: NcclOptions,
    pub(super) version: Version,
    pub(super) numbers: Numbers,
    /// Rung for the watch.
    pub(super) bell: Arc<dyn Bell>,
    pub(super) lanes: Mutex<Vec<Arc<Lane<N, C, P>>>>,
    /// How many communicators this rank has made for the whole group.
    pub(super) made: AtomicUsize,
    /// The ids of those that were not split from another.
    pub(super) ids: Mutex<Vec<UniqueId>>,
    /// Communicators that could not be ended in time.
    pub(super) abandoned: AtomicUsize,
    /// Communicators that are being aborted and that no lane has.
    pub(super) strays: Mutex<Vec<Stray>>,
    /// Until when somebody waits for the end of all.
    pub(super) farewell: Arc<Farewell>,
    pub(super) is_closing: AtomicBool,
    /// Whether the watch has ended, which is after all threads of the group that will.
    pub(super) has_ended: Arc<AtomicBool>,
    pub(super) turns: Mutex<Turns>,
    /// The threads that are adding collectives to a batch of this group's, which have their numbers and not yet their place among others.
    pub(super) adding: Mutex<Vec<ThreadId>>,
    /// Groups whose communicators were split from this one's.
    pub(super) children: Mutex<Vec<Weak<Hall<N, C, P>>>>,
    pub(super) history: Mutex<History>,
    pub(super) standings: Mutex<Vec<Option<Standing>>>,
    /// The number of the last operation that all ranks met over.
    pub(super) met: Mutex<Option<u32>>,
    /// What a call was answered that has failed because of another rank, and when: the watch finds out which.
    pub(super) suspicion: Mutex<Option<Fate>>,
    fate: Mutex<Option<Fate>>,
    open: Mutex<Vec<Arc<Flight>>>,
    events: Bin,
    /// What operations over memory of the host go through.
    pub(super) staging: Arc<Staging<C>>,
    /// Memory that operations had the last handles on.
    pub(super) freeing: Arc<Freeing<C>>,
}

/// The first failure, and when it came.
#[derive(Clone, Debug)]
pub(super) struct Fate {
    pub(super) error: Error,
    pub(super) at: Duration,
}

/// Which number comes next, and which later ones are already dealt with.
#[derive(Debug, Default)]
pub(super) struct Turns {
    next: u32,
    passed: BTreeSet<u32>,
}

impl Turns {
    /// Whether this number is the next.
    pub(super) fn is_next(&self, number: u32) -> bool {
        self.next == number
    }

    /// That a number is dealt with.
    pub(super) fn pass(&mut self, number: u32) {
        self.passed.insert(number);
        while self.passed.remove(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
    }
}

/// What this rank's last collectives were, and what came of them; and how many messages of batches it has called.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) called: u32,
    pub(super) prints: VecDeque<(Fingerprint, String)>,
    pub(super) digests: VecDeque<(u32, u64)>,
    /// With each rank that there were any with, the last at the end.
    pub(super) met: VecDeque<Met>,
}

impl<N: Nccl, C: Cuda, P: Process> Hall<N, C, P> {
    /// The world's number of a rank of the group.
    pub(super) fn world_rank(&self, rank: usize) -> usize {
        self.options.members.as_ref().and_then(|members| members.get(rank).copied()).unwrap_or(rank)
    }

    /// An error with the world's numbers of the group's ranks.
    pub(super) fn in_world(&self, error: Error) -> Error {
        self.options.members.iter().fold(error, |error, members| error.in_world(members))
    }

    pub(super) fn new(
        stack: Stack<N, C, P>,
        layout: Layout,
        store: Store,
        options: NcclOptions,
    ) -> Result<Arc<Hall<N, C, P>>> {
        let nccl = &*stack.nccl;
        let version = nccl.version().map_err(|status| failure::of_nccl(nccl, "ncclGetVersion", status, None))?;
        if version < Version::OLDEST {
            let why = format!("version {version} is older than {}", Version::OLDEST);
            return Err(Error::setup("NCCL", why));
        }
        if options.blocks {
            let why = "NCCL_COMM_BLOCKING is 1, and must be 0 or unset: a communicator that blocks cannot be given up";
            return Err(Error::setup("NCCL", why));
        }
        let bell = stack.process.bell();
        let staging = Staging::new(stack.cuda(), stack.device, stack.process.bell());
        let freeing = Freeing::new(&stack, options.abort_timeout);
        let size = layout.size();
        Ok(Arc::new(Hall {
            bell,
            layout,
            store,
            options,
            version,
            numbers: Numbers::new(0, 0),
            lanes: Mutex::default(),
            made: AtomicUsize::new(0),
            ids: Mutex::default(),
            abandoned: AtomicUsize::new(0),
            strays: Mutex::default(),
            farewell: Arc::default(),
            is_closing: AtomicBool::new(false),
            has_ended: Arc::default(),
            turns: Mutex::default(),
            adding: Mutex::default(),
            children: Mutex::default(),
            history: Mutex::default(),
            standings: Mutex::new((0..size).map(|_| None).collect()),
            met: Mutex::default(),
            suspicion: Mutex::default(),
            fate: Mutex::default(),
            open: Mutex::default(),
            events: Bin::default(),
            staging,
            freeing,
            stack,
        }))
    }

    pub(super) fn now(&self) -> Duration {
        self.stack.process.now()
    }

    /// The first failure, if there was one.
    pub(super) fn fate(&self) -> Option<Fate> {
        lock(&self.fate).clone()
    }

    /// That nothing has failed; else what whoever comes later is told.
    pub(super) fn check(&self) -> Result<()> {
        self.fate().map_or(Ok(()), |fate| Err(Error::aborted_by(fate.error)))
    }

    /// An error of CUDA.
    pub(super) fn cuda<T>(&self, call: &str, answer: Result<T, crate::api::CudaCode>) -> Result<T> {
        answer.map_err(|code| failure::of_cuda(&*self.stack.cuda, call, code))
    }

    /// An event, one that was used before if there is any.
    pub(super) fn event(&self) -> Result<Event> {
        if let Some(event) = lock(&self.events).pop() {
            return Ok(event);
        }
        let kind = if self.options.keeps_time { EventKind::Timing } else { EventKind::Order };
        self.cuda("create_event", self.stack.cuda.create_event(self.stack.device, kind))
    }

    /// The flight of some calls, noted as under way.
    pub(super) fn depart(&self, calls: Vec<Call>, ready: Option<Event>) -> Result<Arc<Flight>> {
        let start = if self.options.keeps_time { Some(self.event()?) } else { None };
        let events = Events { ready, start, end: self.event()? };
        let flight =
            Arc::new(Flight::new(calls, self.stack.process.bell(), self.now(), (events, Arc::clone(&self.events))));
        lock(&self.open).push(Arc::clone(&flight));
        // A failure that came just before has ended all that was here, and not this.
        if let Err(error) = self.check() {
            flight.finish(self.now(), Err(error));
        }
        self.bell.ring();
        Ok(flight)
    }

    /// What has not ended yet; what has is forgotten.
    pub(super) fn under_way(&self) -> Vec<Arc<Flight>> {
        let mut open = lock(&self.open);
        open.retain(|flight| flight.stage() != Stage::Done);
        open.clone()
    }

    /// Writes down what was called, for the other ranks to compare.
    pub(super) fn note(&self, call: &Call) {
        if call.op.is_message() {
            return;
        }
        let mut history = lock(&self.history);
        // A batch that another thread is still adding to may be launched after what came later.
        let next = call.sequence.wrapping_add(1);
        if next.wrapping_sub(history.called) <= u32::MAX / 2 {
            history.called = next;
        }
        history.prints.push_back((call.fingerprint, call.site.to_string()));
        while history.prints.len() > REMEMBERED {
            history.prints.pop_front();
        }
    }

    /// Counts a message of a batch, if it is one.
    pub(super) fn note_message(&self, call: &Call) -> Option<Message> {
        let (peer, is_sent) = (u32::try_from(peer(call)?).ok()?, call.op.kind() == OpKind::Send);
        let mut history = lock(&self.history);
        let known = history.met.iter().position(|met| met.peer == peer);
        let known = known.and_then(|at| history.met.remove(at));
        let mut met = known.unwrap_or(Met { peer, ..Met::default() });
        let count = if is_sent { &mut met.sent } else { &mut met.received };
        let turn = *count;
        *count = turn.wrapping_add(1);
        history.met.push_back(met);
        Some(Message { peer, turn, is_sent })
    }

    /// Passes over a call that was numbered and does not begin.
    pub(super) fn skip(&self, call: &Call) {
        if !call.op.is_message() {
            lock(&self.turns).pass(call.sequence);
            self.lanes().iter().for_each(|lane| lane.ring());
        }
    }

    /// Writes down what came of an operation that gives all ranks the same.
    pub(super) fn note_digest(&self, sequence: u32, digest: u64) {
        let mut history = lock(&self.history);
        history.digests.push_back((sequence, digest));
        while history.digests.len() > REMEMBERED {
            history.digests.pop_front();
        }
    }

    /// Gives a job to the lane of its operation.
    pub(super) fn give(self: &Arc<Hall<N, C, P>>, line: Line, job: Job<C>) -> Result<()> {
        Lane::of(self, line)?.push(job)
    }

    /// What a caller waits by.
    pub(super) fn waiting(self: &Arc<Hall<N, C, P>>, flight: Arc<Flight>) -> Waiting {
        let process = Arc::clone(&self.stack.process);
        let clock: Clock = Arc::new(move || process.now());
        let hall = Arc::clone(self);
        let late = Box::new(move |flight: &Arc<Flight>| hall.fail(hall.late(flight), Some(flight)));
        Waiting { flight, clock, late }
    }

    /// Ends everything with an error; the first stays. Aborts communicators from threads of their own, and returns at once.
    pub(super) fn fail(self: &Arc<Hall<N, C, P>>, error: Error, culprit: Option<&Arc<Flight>>) {
        let (fate, is_first) = {
            let mut fate = lock(&self.fate);
            let is_first = fate.is_none();
            (fate.get_or_insert_with(|| Fate { error: error.clone(), at: self.now() }).clone(), is_first)
        };
        let now = self.now();
        if let Some(culprit) = culprit {
            culprit.finish(now, Err(error));
        }
        for flight in self.under_way() {
            flight.finish(now, Err(Error::aborted_by(fate.error.clone())));
        }
        if is_first {
            // Children first: they may use what is this group's.
            let told = self.told_to_children(fate.error);
            self.children().iter().for_each(|child| child.fail(told.clone(), None));
            self.abort_lanes();
        }
        self.bell.ring();
    }

    /// That a call has failed because of another rank, which the library does not name.
    pub(super) fn suspect(&self, error: Error) {
        let at = self.now();
        lock(&self.suspicion).get_or_insert(Fate { error, at });
    }

    /// Leaves the group: what is under way goes on to its end.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.bell.ring();
        self.lanes().iter().for_each(|lane| lane.ring());
    }

    /// Leaves the group, and waits until all has ended after that, at most so long.
    pub(super) fn leave(&self, timeout: Duration) -> Result<()> {
        let until = self.now().saturating_add(timeout);
        // Communicators have as long, which whoever ends them is told first.
        self.farewell.extend(until);
        self.close();
        let last = until.saturating_add(SLACK);
        loop {
            let seen = self.bell.count();
            if is_set(&self.has_ended) {
                break;
            }
            if self.now() >= last {
                return Err(Error::setup(LEAVING, format!("not all of it has ended within {timeout:?}")));
            }
            self.bell.wait(seen, Some(last));
        }
        match self.abandoned() {
            0 => Ok(()),
            count => Err(Error::setup(LEAVING, format!("communicators that could not be ended in time: {count}"))),
        }
    }

    /// The lanes there are.
    pub(super) fn lanes(&self) -> Vec<Arc<Lane<N, C, P>>> {
        lock(&self.lanes).clone()
    }

    /// The groups that were split from this one and are still there.
    fn children(&self) -> Vec<Arc<Hall<N, C, P>>> {
        lock(&self.children).iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether no communicator that was split from this group's is still to be aborted.
    pub(super) fn has_quiet_children(&self) -> bool {
        let have_ended = lock(&self.strays).iter().all(Stray::has_ended);
        have_ended && self.children().iter().all(|child| child.lanes().iter().all(|lane| lane.is_quiet()))
    }

    fn abort_lanes(self: &Arc<Hall<N, C, P>>) {
        for lane in self.lanes() {
            let name = format!("nccl-abort-{}", self.layout.rank());
            let helper = Arc::clone(&lane);
            if !self.stack.process.spawn(name, Box::new(move || helper.abort())) {
                log::warn!("no thread was to be had to abort a communicator");
                lane.abandon();
            }
        }
    }
}

impl<N, C: Cuda, P> Drop for Hall<N, C, P> {
    fn drop(&mut self) {
        let events = std::mem::take(&mut *lock(&self.events));
        for event in events {
            let _ = self.stack.cuda.destroy_event(event);
        }
    }
}

/// A flag that was raised or not.
pub(super) fn is_set(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Acquire)
}

/// What fails where a group does not end.
const LEAVING: &str = "leaving the group over NCCL";
/// How much longer whoever leaves waits for a group than that does for its communicators, to be told of those that it gave up.
const SLACK: Duration = Duration::from_millis(250);
/// How many of its last collectives a rank tells.
const REMEMBERED: usize = 16;
