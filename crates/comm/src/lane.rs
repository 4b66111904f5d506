//! The lane of one rank: collectives in the order of their numbers, whoever plays them.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use phalanx_core::Call;
use phalanx_core::backend::Buffers;

use crate::slot::Slot;

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    turn: u32,
    queue: BTreeMap<u32, Job>,
    /// Nothing more will be queued.
    closed: bool,
    /// The group has failed: no turn comes any more.
    broken: bool,
    nudged: bool,
    /// How many threads wait for a change. While there are none, nobody is woken, which is a system call.
    waiting: usize,
}

/// An asynchronous collective that waits for its turn.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) call: Call,
    pub(crate) buffers: Buffers,
    pub(crate) slot: Arc<Slot>,
    /// When it was handed over: its time runs from then.
    pub(crate) queued: Instant,
}

/// The turn of one collective. It ends when this is dropped, however the playing ended.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Lane);

impl Lane {
    /// Waits for the turn of number `sequence`; none when it has not come within `limit` or never will.
    pub(crate) fn enter(&self, sequence: u32, limit: Duration) -> Option<Turn<'_>> {
        let waits = |state: &mut State| state.turn != sequence && !state.broken;
        let state = self.wait_while(limit, waits);
        // Not `then_some`: a turn that is made is a turn that ends.
        (state.turn == sequence && !state.broken).then(|| Turn(self))
    }

    /// Queues a job for whoever calls [`next`](Lane::next).
    pub(crate) fn queue(&self, job: Job) {
        self.change(|state| drop(state.queue.insert(job.call.sequence, job)));
    }

    /// The job whose turn it is; none when a nudge, the end or `limit` comes before it. Jobs of a broken lane come in
    /// any case, to be told.
    pub(crate) fn next(&self, limit: Duration) -> Option<(Job, Turn<'_>)> {
        let waits = |state: &mut State| !state.is_due() && !state.closed && !state.nudged;
        let mut state = self.wait_while(limit, waits);
        state.nudged = false;
        let turn = if state.broken { *state.queue.first_key_value()?.0 } else { state.turn };
        Some((state.queue.remove(&turn)?, Turn(self)))
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
        self.change(|state| state.broken = true);
    }

    /// Makes [`next`](Lane::next) return, so that its caller looks around.
    pub(crate) fn nudge(&self) {
        self.change(|state| state.nudged = true);
    }

    fn wait_while(&self, limit: Duration, mut waits: impl FnMut(&mut State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.state();
        if !waits(&mut state) {
            return state;
        }
        state.waiting += 1;
        let waited = self.changed.wait_timeout_while(state, limit, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        if state.waiting > 0 {
            drop(state);
            self.changed.notify_all();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_due(&self) -> bool {
        self.queue.contains_key(&self.turn) || (self.broken && !self.queue.is_empty())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.turn = state.turn.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_does_not_come_is_not_taken() {
        let lane = Lane::default();
        assert!(lane.enter(1, Duration::ZERO).is_none());
        drop(lane.enter(0, Duration::ZERO).expect("the first turn"));
        drop(lane.enter(1, Duration::ZERO).expect("the second turn"));
        lane.break_off();
        assert!(lane.enter(2, Duration::from_secs(60)).is_none());
    }
}
