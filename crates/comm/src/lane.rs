//! The lane of one rank: collectives in the order of their numbers, whoever plays them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use phalanx_core::Call;
use phalanx_core::backend::Buffers;

use crate::fate;
use crate::moment;
use crate::slot::Slot;

/// Whose turn it is.
///
/// A turn that has come already is taken and given up without the lock, as small operations have no time for it. Who gives
/// one up counts first and then looks for waiters; a waiter says that it is one and then looks at the count: one of
/// them sees the other. Who waits for jobs waits for no turn while none is queued, and looks at the count when one is.
#[derive(Debug)]
pub(crate) struct Lane {
    turn: AtomicU32,
    /// The first number whose turn does not come any more, as the group has failed; [`WHOLE`] where there is none.
    broken_from: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
    /// How many threads wait for a change. While there are none, nobody is woken, which is a system call.
    waiting: AtomicUsize,
    /// How many of them wait for a turn.
    entering: AtomicUsize,
    /// How many jobs are queued.
    queued: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    queue: BTreeMap<u32, Job>,
    /// Nothing more will be queued.
    closed: bool,
    nudged: bool,
}

/// An asynchronous collective that waits for its turn.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) call: Call,
    /// When it has taken too long, whether its turn has come by then or not.
    pub(crate) deadline: Option<Instant>,
    pub(crate) buffers: Buffers,
    pub(crate) slot: Arc<Slot>,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.slot.forsake();
    }
}

/// The turn of one collective. It ends when this is dropped, however the playing ended.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    lane: &'a Lane,
    was_awaited: bool,
}

impl Lane {
    /// A lane whose first turn is that of the collective with this number.
    pub(crate) fn starting_at(first: u32) -> Lane {
        Lane {
            turn: AtomicU32::new(first),
            broken_from: AtomicU64::new(WHOLE),
            state: Mutex::default(),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            entering: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
        }
    }

    /// Waits for the turn of number `sequence`; none when it has not come within `limit` or never will.
    pub(crate) fn enter(&self, sequence: u32, limit: Duration) -> Option<Turn<'_>> {
        let waits = || self.turn() != sequence && !self.is_broken(sequence);
        let was_awaited = waits();
        if was_awaited {
            self.wait_for_turn(limit, waits);
        }
        // Not `then_some`: a turn that is made is a turn that ends.
        (self.turn() == sequence && !self.is_broken(sequence)).then(|| Turn { lane: self, was_awaited })
    }

    /// Waits until the turns of all numbers before this one are over, or come no more; false when that takes longer than `limit`.
    pub(crate) fn comes_to(&self, sequence: u32, limit: Duration) -> bool {
        let waits = || {
            let turn = self.turn();
            fate::is_before(turn, sequence) && !self.is_broken(turn)
        };
        if waits() {
            self.wait_for_turn(limit, waits);
        }
        !waits()
    }

    /// Whether a turn would have to be waited for no longer.
    pub(crate) fn is_turn_of(&self, sequence: u32) -> bool {
        self.turn() == sequence
    }

    /// The number whose turn it is.
    pub(crate) fn turn(&self) -> u32 {
        self.turn.load(Ordering::SeqCst)
    }

    /// Queues a job for whoever waits in [`next`](Lane::next), who has to look again how long it can wait.
    pub(crate) fn queue(&self, job: Job) {
        self.change(|state| {
            state.queue.insert(job.call.sequence, job);
            state.nudged = true;
            self.queued.store(state.queue.len(), Ordering::SeqCst);
        });
    }

    /// Whether a job is queued, whose turn may have come.
    pub(crate) fn has_queued(&self) -> bool {
        self.queued.load(Ordering::SeqCst) > 0
    }

    /// A job that has waited too long for its turn.
    pub(crate) fn take_overdue(&self) -> Option<Job> {
        let mut state = self.state();
        let now = Instant::now();
        let late = state.queue.values().find(|job| job.deadline.is_some_and(|deadline| deadline <= now));
        let late = late?.call.sequence;
        self.take(&mut state, late)
    }

    /// The job whose turn it is; none when a nudge, the end, `limit` or the deadline of a job comes before it. Jobs of a
    /// broken lane come in any case, to be told, and have no turn before it is theirs.
    pub(crate) fn next(&self, limit: Duration) -> Option<(Job, Option<Turn<'_>>)> {
        let waits = |state: &State| !self.is_due(state) && !state.closed && !state.nudged;
        let mut state = self.state();
        if waits(&state) {
            let limit = state.rest(limit);
            drop(state);
            state = self.wait_while(limit, waits);
        }
        state.nudged = false;
        let turn = self.turn();
        let number = if state.queue.contains_key(&turn) { turn } else { self.first_broken(&state)? };
        let job = self.take(&mut state, number)?;
        Some((job, (number == turn).then(|| Turn { lane: self, was_awaited: true })))
    }

    fn take(&self, state: &mut State, sequence: u32) -> Option<Job> {
        let job = state.queue.remove(&sequence);
        self.queued.store(state.queue.len(), Ordering::SeqCst);
        job
    }

    /// Whether nothing more will be queued.
    pub(crate) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Whether nothing is queued and nothing more will be.
    pub(crate) fn is_finished(&self) -> bool {
        let state = self.state();
        state.closed && state.queue.is_empty()
    }

    /// Says that nothing more will be queued.
    pub(crate) fn close(&self) {
        self.change(|state| state.closed = true);
    }

    /// Says that no turn comes any more.
    pub(crate) fn break_off(&self) {
        self.broken_from.store(NOTHING, Ordering::SeqCst);
        self.tell();
    }

    /// Says that no turn comes from this number on: those before it have nothing to do with what the group failed of.
    pub(crate) fn break_off_from(&self, sequence: u32) {
        let from = |broken| (broken == WHOLE).then_some(u64::from(sequence));
        let _ = self.broken_from.fetch_update(Ordering::SeqCst, Ordering::SeqCst, from);
        self.tell();
    }

    /// Makes [`next`](Lane::next) return, so that its caller looks around.
    pub(crate) fn nudge(&self) {
        self.change(|state| state.nudged = true);
    }

    /// Whether the turn of this number does not come any more.
    pub(crate) fn is_broken(&self, sequence: u32) -> bool {
        match self.broken_from.load(Ordering::SeqCst) {
            WHOLE => false,
            NOTHING => true,
            from => !fate::is_before(sequence, from as u32),
        }
    }

    /// The first job whose turn never comes.
    fn first_broken(&self, state: &State) -> Option<u32> {
        state.queue.keys().copied().find(|sequence| self.is_broken(*sequence))
    }

    fn is_due(&self, state: &State) -> bool {
        state.queue.contains_key(&self.turn()) || self.first_broken(state).is_some()
    }

    fn wait_for_turn(&self, limit: Duration, waits: impl Fn() -> bool) {
        self.entering.fetch_add(1, Ordering::SeqCst);
        drop(self.wait_while(limit, |_| waits()));
        self.entering.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether anybody waits for the next turn.
    fn is_turn_awaited(&self) -> bool {
        self.entering.load(Ordering::SeqCst) > 0 || self.has_queued()
    }

    fn wait_while(&self, limit: Duration, mut waits: impl FnMut(&State) -> bool) -> MutexGuard<'_, State> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let waited = self.changed.wait_timeout_while(self.state(), limit, |state| waits(state));
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.tell();
    }

    /// Wakes whoever waits, after a change.
    fn tell(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            // A waiter that has looked in vain holds the lock until it sleeps.
            drop(self.state());
            self.changed.notify_all();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// How long the first deadline of what is queued is away, at most `limit`.
    fn rest(&self, limit: Duration) -> Duration {
        let first = self.queue.values().filter_map(|job| job.deadline).min();
        first.map_or(limit, |first| moment::left(first).min(limit))
    }
}

impl Turn<'_> {
    /// Whether it did not come at once.
    pub(crate) fn was_awaited(&self) -> bool {
        self.was_awaited
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.lane.turn.fetch_add(1, Ordering::SeqCst);
        if self.lane.is_turn_awaited() {
            self.lane.tell();
        }
    }
}

/// What a lane is broken from where all turns come, and where none does.
const WHOLE: u64 = u64::MAX;
const NOTHING: u64 = u64::MAX - 1;

#[cfg(test)]
mod tests {
    use std::thread;

    use phalanx_core::{DType, Op};

    use super::*;
    use crate::Threads;

    /// A job that waits for this turn.
    fn job(sequence: u32) -> Job {
        let groups = Threads::new(1).groups().expect("a rank");
        let mut call = groups[0].call_elsewhere(Op::Barrier, DType::U8, None, None, 0).expect("a call");
        call.sequence = sequence;
        Job { call, deadline: None, buffers: Buffers::default(), slot: Arc::default() }
    }

    #[test]
    fn what_never_comes_takes_no_turn_of_what_comes_before_it() {
        let lane = Lane::starting_at(0);
        lane.break_off_from(5);
        lane.queue(job(7));
        let (job, turn) = lane.next(Duration::ZERO).expect("a job that is to be told");
        assert!(job.call.sequence == 7 && turn.is_none());
        drop(turn);
        assert_eq!(lane.turn(), 0);
    }

    #[test]
    fn who_waits_for_what_comes_before_is_woken_by_the_last_turn_or_the_end() {
        let lane = Lane::starting_at(u32::MAX);
        assert!(lane.comes_to(u32::MAX, Duration::ZERO) && !lane.comes_to(1, Duration::ZERO));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lane.comes_to(1, Duration::from_secs(60)));
            drop(lane.enter(u32::MAX, Duration::ZERO).expect("the turn before the last"));
            assert!(!lane.comes_to(1, Duration::ZERO));
            drop(lane.enter(0, Duration::ZERO).expect("the last turn"));
            assert!(waiter.join().expect("no panic"));
        });
        assert!(!lane.comes_to(9, Duration::ZERO));
        lane.break_off();
        assert!(lane.comes_to(9, Duration::from_secs(60)));
    }

    /// Each would cost whoever gives a turn up a call of the system, and the core a switch.
    #[test]
    fn who_waits_for_jobs_is_woken_by_turns_only_while_one_is_queued() {
        let lane = Lane::starting_at(0);
        thread::scope(|scope| {
            let driver = scope.spawn(|| {
                loop {
                    // A nudge makes it look again.
                    if let Some((job, _turn)) = lane.next(Duration::from_secs(60)) {
                        break job.call.sequence;
                    }
                }
            });
            let sleeps = || {
                while lane.waiting.load(Ordering::SeqCst) == 0 {
                    thread::yield_now()
                }
            };
            sleeps();
            assert!(!lane.is_turn_awaited());
            drop(lane.enter(0, Duration::ZERO).expect("the first turn"));
            lane.queue(job(2));
            assert!(lane.is_turn_awaited());
            sleeps();
            drop(lane.enter(1, Duration::ZERO).expect("the second turn"));
            assert_eq!(driver.join().expect("no panic"), 2);
        });
        thread::scope(|scope| {
            let next = scope.spawn(|| lane.enter(4, Duration::from_secs(60)).is_some());
            while !lane.is_turn_awaited() {
                thread::yield_now();
            }
            drop(lane.enter(3, Duration::ZERO).expect("the turn after the job's"));
            assert!(next.join().expect("no panic"));
        });
        assert!(!lane.is_turn_awaited());
    }

    #[test]
    fn what_ranks_disagree_about_later_breaks_no_turn_before_it() {
        let lane = Lane::starting_at(u32::MAX);
        lane.break_off_from(1);
        drop(lane.enter(u32::MAX, Duration::from_secs(60)).expect("the turn before the last"));
        assert!(lane.enter(1, Duration::from_secs(60)).is_none());
        drop(lane.enter(0, Duration::from_secs(60)).expect("the last turn"));
        assert!(lane.enter(1, Duration::from_secs(60)).is_none(), "its turn has come, and it is broken");
        lane.break_off_from(7);
        assert!(lane.enter(1, Duration::from_secs(60)).is_none(), "the first word stays");
    }

    #[test]
    fn a_turn_that_does_not_come_is_not_taken() {
        let lane = Lane::starting_at(0);
        assert!(lane.enter(1, Duration::ZERO).is_none());
        drop(lane.enter(0, Duration::ZERO).expect("the first turn"));
        drop(lane.enter(1, Duration::ZERO).expect("the second turn"));
        lane.break_off();
        assert!(lane.enter(2, Duration::from_secs(60)).is_none());
    }
}
