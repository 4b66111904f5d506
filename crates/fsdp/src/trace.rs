//! What a sharded model came to and what was done for it, in order: for tests and for whoever wonders. Nothing is decided by it.

use std::time::{Duration, Instant};

use crate::{Action, Event};

/// One entry of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// Since the model was sharded.
    pub at: Duration,
    /// What happened.
    pub what: Step,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// The model said so.
    Came(Event),
    /// The engine did this.
    Did(Action),
}

/// Entries since they were last taken, and the time that was spent waiting.
#[derive(Debug)]
pub(crate) struct Trace {
    began: Instant,
    entries: Option<Vec<Traced>>,
    waited: Duration,
}

impl Trace {
    pub(crate) fn new(is_on: bool) -> Trace {
        Trace { began: Instant::now(), entries: is_on.then(Vec::new), waited: Duration::ZERO }
    }

    pub(crate) fn note(&mut self, what: Step) {
        if let Some(entries) = &mut self.entries {
            entries.push(Traced { at: self.began.elapsed(), what });
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Traced> {
        self.entries.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Runs what waits for other ranks.
    pub(crate) fn wait<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let end = wait();
        self.waited += began.elapsed();
        end
    }

    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }
}
