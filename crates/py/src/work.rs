//! An operation under way, in Python's hands: waited for on a thread, or watched by the room `completion`, which then tells Python.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use phalanx::Result;
use phalanx::backend::{Buffers, Finished, Pending};
use pyo3::{Py, PyAny, PyResult, Python, pyclass, pymethods};

use crate::completion;
use crate::failure::raised;

/// An operation under way. Letting go of it leaves the operation going on, because its peers count on it.
#[pyclass(frozen, module = "phalanx._native")]
pub(crate) struct Work(Arc<Progress>);

/// How far an operation has come, for all who ask.
pub(crate) struct Progress {
    state: Mutex<State>,
    changed: Condvar,
    epoch: u32,
}

struct State {
    stage: Stage,
    /// Who is to be told of the end.
    callbacks: Vec<Py<PyAny>>,
}

enum Stage {
    /// Whoever waits takes it out and waits on it.
    Here(Box<dyn Pending>),
    /// Somebody waits on it, or it is watched.
    Away,
    /// The sender of a message that was received, or why it failed.
    Ended(Result<Option<usize>>),
}

/// An end that Python has not heard of yet.
pub(crate) struct End {
    outcome: Result<Option<usize>>,
    callbacks: Vec<Py<PyAny>>,
    /// They belong to Python, and are freed where it may run.
    _buffers: Option<Buffers>,
}

impl Work {
    pub(crate) fn new(pending: Box<dyn Pending>, epoch: u32) -> Work {
        let state = State { stage: Stage::Here(pending), callbacks: Vec::new() };
        Work(Arc::new(Progress { state: Mutex::new(state), changed: Condvar::new(), epoch }))
    }
}

#[pymethods]
impl Work {
    /// Waits for the end, at most this long, and says whether it has come. Raises what the operation failed of. Who has a limit calls nobody
    /// back, because that may take any time.
    #[pyo3(signature = (millis=None))]
    fn wait(&self, py: Python<'_>, millis: Option<u64>) -> PyResult<bool> {
        let Some(end) = py.detach(|| self.0.wait(millis.map(Duration::from_millis))) else {
            return Ok(false);
        };
        let outcome = end.outcome.clone();
        let left =
            if millis.is_some() && !end.callbacks.is_empty() { completion::tell(&self.0, end) } else { Err(end) };
        if let Err(end) = left {
            end.tell(py, self.0.epoch);
        }
        outcome.map(|_| true).map_err(|error| raised(py, &error, self.0.epoch))
    }

    /// Whether the end has come.
    fn is_done(&self) -> bool {
        match &self.0.state().stage {
            Stage::Here(pending) => pending.is_done(),
            Stage::Away => false,
            Stage::Ended(_) => true,
        }
    }

    /// The rank that sent the message which was received, once its end was waited for.
    fn source(&self) -> Option<usize> {
        match &self.0.state().stage {
            Stage::Ended(Ok(source)) => *source,
            _ => None,
        }
    }

    /// Calls `callback` once with what the operation failed of, or None, when it has ended: on a thread of ours, or on that of
    /// whoever waits for it, or here where it has ended already.
    fn then(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        let mut state = self.0.state();
        if let Stage::Ended(outcome) = &state.stage {
            let outcome = outcome.clone();
            drop(state);
            End { outcome, callbacks: vec![callback], _buffers: None }.tell(py, self.0.epoch);
            return Ok(());
        }
        state.callbacks.push(callback);
        let pending = match std::mem::replace(&mut state.stage, Stage::Away) {
            Stage::Here(pending) => pending,
            // Whoever is away with it tells everybody.
            _ => return Ok(()),
        };
        drop(state);
        completion::watch(&self.0, pending).map_err(|(error, pending)| {
            let mut state = self.0.state();
            // It is the only one: where others are to be told, somebody is away with the operation. Let go of once the lock is.
            let _refused = std::mem::take(&mut state.callbacks);
            self.0.bring_back(state, pending);
            raised(py, &error, self.0.epoch)
        })
    }
}

impl Progress {
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Writes the end down and wakes who waits for it.
    pub(crate) fn end(&self, end: Result<Finished>) -> End {
        let (outcome, buffers) = match end {
            Ok(Finished { buffers, source }) => (Ok(source), Some(buffers)),
            Err(error) => (Err(error), None),
        };
        let mut state = self.state();
        state.stage = Stage::Ended(outcome.clone());
        let callbacks = std::mem::take(&mut state.callbacks);
        drop(state);
        self.changed.notify_all();
        End { outcome, callbacks, _buffers: buffers }
    }

    fn wait(self: &Arc<Progress>, limit: Option<Duration>) -> Option<End> {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let left = || until.map(|until| until.saturating_duration_since(Instant::now()));
        let mut state = self.state();
        loop {
            match std::mem::replace(&mut state.stage, Stage::Away) {
                Stage::Here(pending) => {
                    drop(state);
                    return self.wait_on(pending, left());
                }
                Stage::Ended(outcome) => {
                    state.stage = Stage::Ended(outcome.clone());
                    return Some(End { outcome, callbacks: Vec::new(), _buffers: None });
                }
                Stage::Away => {}
            }
            // Whoever is away with it ends in bounded time: the operation has a timeout.
            state = match left() {
                Some(left) if left.is_zero() => return None,
                Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn wait_on(self: &Arc<Progress>, mut pending: Box<dyn Pending>, limit: Option<Duration>) -> Option<End> {
        if let Some(end) = pending.wait(limit) {
            return Some(self.end(end));
        }
        let state = self.state();
        if state.callbacks.is_empty() {
            self.bring_back(state, pending);
            return None;
        }
        drop(state);
        completion::watch(self, pending).err().map(|(error, _)| self.end(Err(error)))
    }

    /// Leaves it to whoever comes to wait for it.
    fn bring_back(&self, mut state: MutexGuard<'_, State>, pending: Box<dyn Pending>) {
        state.stage = Stage::Here(pending);
        drop(state);
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl End {
    /// Tells everybody who asked for it.
    pub(crate) fn tell(self, py: Python<'_>, epoch: u32) {
        for callback in self.callbacks {
            let failure = self.outcome.as_ref().err().map(|error| raised(py, error, epoch));
            if let Err(error) = callback.call1(py, (failure,)) {
                error.write_unraisable(py, Some(callback.bind(py)));
            }
        }
    }
}
