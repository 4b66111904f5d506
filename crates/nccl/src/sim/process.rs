//! The simulated process of one rank: its threads, its time and what they wait on.

use std::sync::Arc;
use std::time::Duration;

use super::fault::Fault;
use super::stage::{BellState, Stage, Standing};
use crate::api::{Bell, Process};

/// Threads of the stage, virtual time, and bells.
pub struct SimProcess {
    pub(super) stage: Arc<Stage>,
    pub(super) rank: usize,
}

impl Process for SimProcess {
    fn now(&self) -> Duration {
        self.stage.look().now
    }

    fn spawn(&self, name: String, body: Box<dyn FnOnce() + Send>) -> bool {
        let is_refused = {
            let mut state = self.stage.look();
            let thread = state.engine.ranks[self.rank].threads;
            state.engine.ranks[self.rank].threads += 1;
            state.engine.script.has(self.rank, Fault::NoThread { thread })
        };
        if !is_refused {
            self.stage.spawn(self.rank, name, false, body);
        }
        !is_refused
    }

    fn give_way(&self) {
        let state = self.stage.enter(self.rank);
        let until = state.now + MOMENT;
        drop(self.stage.hold(state, Standing::Until(until)));
    }

    fn bell(&self) -> Arc<dyn Bell> {
        Arc::new(SimBell::new(Arc::clone(&self.stage), self.rank))
    }
}

/// A bell of the stage.
pub(super) struct SimBell {
    stage: Arc<Stage>,
    rank: usize,
    index: usize,
}

impl SimBell {
    pub(super) fn new(stage: Arc<Stage>, rank: usize) -> SimBell {
        let index = {
            let mut state = stage.look();
            state.bells.push(BellState::default());
            state.bells.len() - 1
        };
        SimBell { stage, rank, index }
    }

    /// What the calling thread knows is known to whoever looks at the count from now on, though it does not ring yet.
    pub(super) fn tell(&self) {
        let mut state = self.stage.look();
        if let Some(order) = state.own_order() {
            state.bells[self.index].order.join(&order);
        }
    }

    /// The same bell in another rank's hands.
    pub(super) fn of(&self, rank: usize) -> SimBell {
        SimBell { stage: Arc::clone(&self.stage), rank, index: self.index }
    }
}

impl Bell for SimBell {
    fn count(&self) -> u64 {
        let mut state = self.stage.look();
        state.learn_of_bell(self.index);
        state.bells[self.index].count
    }

    fn ring(&self) {
        let mut state = self.stage.enter(self.rank);
        if let Some(order) = state.own_order() {
            state.bells[self.index].order.join(&order);
        }
        state.bells[self.index].count += 1;
    }

    fn wait(&self, seen: u64, until: Option<Duration>) {
        let state = self.stage.enter(self.rank);
        if state.bells[self.index].count > seen || until.is_some_and(|until| until <= state.now) {
            return;
        }
        self.stage.hold(state, Standing::Bell { bell: self.index, seen, until }).learn_of_bell(self.index);
    }
}

/// How long a thread lets others go first: as long as it takes to ask a device something.
const MOMENT: Duration = Duration::from_micros(10);
