//! The stage: threads of the host that play one at a time, in an order and a time that the seed decides. Streams play in between.
//!
//! A thread gives the stage away only inside calls of the simulator, so a lock that is not held across such a call is always free.

use std::any::Any;
use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread, ThreadId};
use std::time::Duration;

use super::comm::Part;
use super::draw::Draw;
use super::engine::Engine;
use super::fault::Plant;
use super::finding::Finding;
use super::order::{Actor, Order};
use super::pin::Core;
use crate::api::Route;

/// Everything, behind one lock.
pub(super) struct Stage {
    state: Mutex<State>,
    /// The groups of calls that threads have open: how deep, and what was called.
    groups: Mutex<Groups>,
    core: Option<Core>,
}

type Groups = HashMap<ThreadId, (usize, Vec<Called>)>;
/// A call in an open group.
pub(super) type Called = (Route, Part);

/// A group of calls that is open.
pub(super) struct OpenGroup<'a> {
    groups: MutexGuard<'a, Groups>,
    thread: ThreadId,
}

impl OpenGroup<'_> {
    pub(super) fn push(&mut self, called: Called) {
        if let Some((_, calls)) = self.groups.get_mut(&self.thread) {
            calls.push(called);
        }
    }
}

/// What the lock guards.
pub(super) struct State {
    pub(super) draw: Draw,
    pub(super) now: Duration,
    pub(super) tasks: Vec<Task>,
    /// The threads that have not ended, in the order of their numbers.
    present: Vec<usize>,
    pub(super) bells: Vec<BellState>,
    pub(super) engine: Engine,
    pub(super) found: Vec<Finding>,
    pub(super) threads: Vec<thread::JoinHandle<()>>,
    /// The threads that had not ended when the run was over, but for programs.
    pub(super) left_over: Vec<String>,
    running: Option<usize>,
    is_over: bool,
    /// When the last program ended; the other threads have a while from then on.
    ended: Option<Duration>,
    steps: u64,
    actors: usize,
    /// Room for those that may play next.
    turns: Vec<(Turn, u32)>,
}

/// A thread of the host.
pub(super) struct Task {
    pub(super) rank: usize,
    pub(super) name: String,
    pub(super) order: Order,
    pub(super) actor: Actor,
    pub(super) standing: Standing,
    /// Whether it is a rank's program rather than a thread of its own making.
    pub(super) is_program: bool,
    /// Whether its calls disturb nobody who captures.
    pub(super) is_relaxed: bool,
    weight: u32,
    /// Whom to wake when its turn has come; none before it was started.
    thread: Option<Thread>,
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Ready,
    /// A bell, rung more often than this, or a moment.
    Bell {
        bell: usize,
        seen: u64,
        until: Option<Duration>,
    },
    /// A moment.
    Until(Duration),
    /// All that is on a stream.
    Stream(usize),
    /// All that is on the streams of its rank.
    Streams,
    /// A communicator of its rank.
    Comm(u64),
    /// The ends of a communicator on all its ranks.
    Ends(u64),
    /// What never comes.
    Never,
    Ended,
}

/// A bell's count, and what those knew who rang it.
#[derive(Debug, Default)]
pub(super) struct BellState {
    pub(super) count: u64,
    pub(super) order: Order,
}

/// How a thread leaves the stage when the run is over.
struct Over;

thread_local! {
    static TASK: Cell<Option<usize>> = const { Cell::new(None) };
}

pub(super) type Guard<'a> = MutexGuard<'a, State>;

impl Stage {
    pub(super) fn new(seed: u64, engine: Engine) -> Stage {
        let state = State {
            draw: Draw::new(seed),
            now: Duration::ZERO,
            tasks: Vec::new(),
            present: Vec::new(),
            turns: Vec::new(),
            bells: Vec::new(),
            engine,
            found: Vec::new(),
            threads: Vec::new(),
            left_over: Vec::new(),
            running: None,
            is_over: false,
            ended: None,
            steps: 0,
            actors: 0,
        };
        Stage { state: Mutex::new(state), groups: Mutex::default(), core: Core::next() }
    }

    /// The state without a turn: for what is no call of a program.
    pub(super) fn look(&self) -> Guard<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call: others may go first. A rank that has vanished does not come back from here.
    pub(super) fn enter(&self, rank: usize) -> Guard<'_> {
        let mut state = self.look();
        let Some(task) = TASK.get() else { return state };
        if state.is_over {
            return leave(state);
        }
        state.now += Duration::from_nanos(200);
        if state.engine.is_gone(rank) {
            return self.hold(state, Standing::Never);
        }
        if state.draw.switches() {
            state.tasks[task].standing = Standing::Ready;
            state = self.hand_over(state, task);
        }
        state
    }

    /// Holds the calling thread until what it waits for has come. A thread from outside does not wait.
    pub(super) fn hold<'a>(&'a self, mut state: Guard<'a>, standing: Standing) -> Guard<'a> {
        let Some(task) = TASK.get() else { return state };
        if state.is_over {
            return leave(state);
        }
        state.tasks[task].standing = standing;
        self.hand_over(state, task)
    }

    fn hand_over<'a>(&'a self, state: Guard<'a>, task: usize) -> Guard<'a> {
        pass_on(state);
        let state = self.await_turn(task);
        if state.is_over { leave(state) } else { state }
    }

    /// Waits until it is this thread's turn, or the run is over.
    fn await_turn(&self, task: usize) -> Guard<'_> {
        loop {
            let state = self.look();
            if state.running == Some(task) || state.is_over {
                return state;
            }
            drop(state);
            thread::park();
        }
    }

    /// The calls of the group that a thread has open.
    pub(super) fn groups(&self, thread: ThreadId) -> Option<OpenGroup<'_>> {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.contains_key(&thread).then_some(OpenGroup { groups, thread })
    }

    /// Opens a group of a thread, which may have one open.
    pub(super) fn open_group(&self, thread: ThreadId) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.entry(thread).or_default().0 += 1;
    }

    /// Closes one: its calls, once it is the outermost.
    pub(super) fn close_group(&self, thread: ThreadId) -> Option<Vec<Called>> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let group = groups.get_mut(&thread)?;
        group.0 -= 1;
        if group.0 > 0 {
            return Some(Vec::new());
        }
        groups.remove(&thread).map(|(_, calls)| calls)
    }

    /// Whether this is how a thread leaves when the run is over.
    pub(super) fn is_over(payload: &(dyn Any + Send)) -> bool {
        payload.is::<Over>()
    }

    /// Starts a thread, which waits for its first turn.
    pub(super) fn spawn(
        self: &Arc<Stage>,
        rank: usize,
        name: String,
        is_program: bool,
        body: Box<dyn FnOnce() + Send>,
    ) {
        let mut state = self.look();
        let (weight, actor) = (state.draw.weight(), state.actor());
        let mut order = state.own_order().unwrap_or_default();
        order.tick(actor);
        let (thread, standing, is_relaxed) = (None, Standing::Ready, false);
        let task = state.tasks.len();
        state.present.push(task);
        state.tasks.push(Task { rank, name, order, actor, standing, is_program, is_relaxed, weight, thread });
        let stage = Arc::clone(self);
        let thread = thread::spawn(move || {
            stage.core.into_iter().for_each(Core::enter);
            stage.play(task, body);
        });
        state.tasks[task].thread = Some(thread.thread().clone());
        state.threads.push(thread);
    }

    fn play(self: Arc<Stage>, task: usize, body: Box<dyn FnOnce() + Send>) {
        TASK.set(Some(task));
        let ended = panic::catch_unwind(AssertUnwindSafe(|| {
            if !self.await_turn(task).is_over {
                body();
            }
        }));
        drop(ended);
        let mut state = self.look();
        state.tasks[task].standing = Standing::Ended;
        state.present.retain(|&other| other != task);
        state.note_end();
        if state.running == Some(task) && !state.is_over {
            pass_on(state);
        }
    }

    /// Raises the curtain, and waits until all programs have ended.
    pub(super) fn run(&self) {
        pass_on(self.look());
        loop {
            let threads = std::mem::take(&mut self.look().threads);
            if threads.is_empty() {
                break;
            }
            for thread in threads {
                let _ = thread.join();
            }
        }
    }
}

/// Gives the turn to whoever is next, and wakes it once the state is free, for which it would wait before.
fn pass_on(mut state: Guard<'_>) {
    state.dispatch();
    let next = state.running.and_then(|task| state.tasks[task].thread.clone());
    drop(state);
    next.iter().for_each(Thread::unpark);
}

/// The end of a thread whose run is over. One that is already on its way out goes on, with calls that do nothing.
fn leave(state: Guard<'_>) -> Guard<'_> {
    if thread::panicking() {
        return state;
    }
    drop(state);
    panic::resume_unwind(Box::new(Over));
}

impl State {
    /// A new actor's number.
    pub(super) fn actor(&mut self) -> Actor {
        self.actors += 1;
        self.actors - 1
    }

    /// The calling thread, where it is one of the stage.
    pub(super) fn own(&mut self) -> Option<&mut Task> {
        TASK.get().and_then(|task| self.tasks.get_mut(task))
    }

    /// Whether a bug is planted that concerns calls of lanes' threads, or those of programs, and this is one.
    pub(super) fn is_planted(&mut self, plant: Plant, by_program: bool) -> bool {
        self.engine.script.has_plant(plant) && self.own().is_some_and(|task| task.is_program == by_program)
    }

    /// What the calling thread knows, at a moment of its own.
    pub(super) fn own_order(&mut self) -> Option<Order> {
        self.own().map(|task| {
            task.order.tick(task.actor);
            task.order.clone()
        })
    }

    /// That the calling thread now knows what those knew who rang a bell.
    pub(super) fn learn_of_bell(&mut self, bell: usize) {
        self.learn(|state| Some(&state.bells[bell].order));
    }

    /// That the calling thread now knows of all that a stream has done.
    pub(super) fn learn_of_stream(&mut self, stream: usize) {
        self.learn(|state| Some(&state.engine.streams[stream].order));
    }

    /// That the calling thread now knows what came before a mark; false where that was not reached.
    pub(super) fn learn_of_mark(&mut self, mark: usize) -> bool {
        self.learn(|state| state.engine.marks[mark].as_ref().map(|(order, _)| order));
        self.engine.marks[mark].is_some()
    }

    fn learn(&mut self, of: impl FnOnce(&State) -> Option<&Order>) {
        // The thread's own order is out of the way while another is looked at.
        let Some(mut own) = self.own().map(|task| std::mem::take(&mut task.order)) else { return };
        of(self).into_iter().for_each(|order| own.join(order));
        if let Some(task) = self.own() {
            task.order = own;
        }
    }

    /// Whether a run is over, so that calls do nothing.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    fn note_end(&mut self) {
        let gone = |task: &Task| task.standing == Standing::Ended || self.engine.is_gone(task.rank);
        if self.tasks.iter().filter(|task| task.is_program).all(gone) {
            self.ended.get_or_insert(self.now);
        }
    }

    /// Lets streams play until it is a thread's turn, and gives it the turn, of which the thread is not told.
    fn dispatch(&mut self) {
        self.running = None;
        loop {
            self.steps += 1;
            if self.steps > MOST_STEPS || self.ended.is_some_and(|ended| self.now > ended + GRACE) {
                return self.end(self.ended.is_none());
            }
            match self.choose() {
                Some(Turn::Thread(task)) => {
                    self.tasks[task].standing = Standing::Ready;
                    self.running = Some(task);
                    return;
                }
                Some(Turn::Stream(stream)) => {
                    self.now += Duration::from_nanos(100 + u64::from(self.draw.below(20_000)));
                    self.play_stream(stream);
                    self.note_end();
                }
                None => match self.next_moment() {
                    Some(moment) => self.now = self.now.max(moment),
                    None => return self.end(self.ended.is_none()),
                },
            }
        }
    }

    fn choose(&mut self) -> Option<Turn> {
        let mut turns = std::mem::take(&mut self.turns);
        turns.clear();
        let threads = self.present.iter().map(|&index| (index, &self.tasks[index]));
        turns.extend(
            threads.filter(|(_, task)| self.is_ready(task)).map(|(index, task)| (Turn::Thread(index), task.weight)),
        );
        let eagerness = if turns.is_empty() { 1 } else { self.draw.eagerness() };
        let streams = self.engine.ready_streams();
        turns.extend(streams.map(|(index, weight)| (Turn::Stream(index), weight * eagerness)));
        let chosen = self.draw.choose(&turns);
        self.turns = turns;
        chosen
    }

    fn is_ready(&self, task: &Task) -> bool {
        if self.engine.is_gone(task.rank) {
            return false;
        }
        match task.standing {
            Standing::Ready => true,
            Standing::Bell { bell, seen, until } => {
                self.bells[bell].count > seen || until.is_some_and(|until| until <= self.now)
            }
            Standing::Until(until) => until <= self.now,
            Standing::Stream(stream) => self.engine.is_idle(stream) || self.engine.sticky(task.rank).is_some(),
            Standing::Streams => self.engine.is_all_idle(task.rank) || self.engine.sticky(task.rank).is_some(),
            Standing::Comm(handle) => self.engine.is_settled(handle),
            Standing::Ends(handle) => self.engine.has_been_left(handle),
            Standing::Never | Standing::Ended => false,
        }
    }

    /// When the first thread wants to be woken.
    fn next_moment(&self) -> Option<Duration> {
        let present = self.present.iter().map(|&index| &self.tasks[index]);
        let waiting = present.filter(|task| !self.engine.is_gone(task.rank));
        let moments = waiting.filter_map(|task| match task.standing {
            Standing::Bell { until, .. } => until,
            Standing::Until(until) => Some(until),
            _ => None,
        });
        moments.min()
    }

    /// Ends the run; where programs are left, because nothing can go on.
    fn end(&mut self, is_stuck: bool) {
        if is_stuck {
            let left = self.tasks.iter().filter(|task| task.standing != Standing::Ended);
            let threads =
                left.map(|task| format!("{} of rank {}: {:?}", task.name, task.rank, task.standing)).collect();
            self.found.push(Finding::Stuck { threads });
        }
        // A thread whose rank has vanished is not expected anywhere.
        let is_left =
            |task: &&Task| !task.is_program && task.standing != Standing::Ended && !self.engine.is_gone(task.rank);
        let left = self.tasks.iter().filter(is_left);
        self.left_over = left.map(|task| format!("{} of rank {}", task.name, task.rank)).collect();
        self.is_over = true;
        self.tasks.iter().flat_map(|task| &task.thread).for_each(Thread::unpark);
    }
}

/// Who may play next.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Thread(usize),
    Stream(usize),
}

/// No run of a test is so long: something turns round and round.
const MOST_STEPS: u64 = 20_000_000;
/// How long threads may go on after all programs have ended.
const GRACE: Duration = Duration::from_secs(60);
