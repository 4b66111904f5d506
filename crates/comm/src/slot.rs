//! Where the end of an asynchronous operation is put for whoever waits for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use phalanx_core::backend::{Finished, Pending};
use phalanx_core::{Error, Result};

/// The meeting place of an operation and its waiter.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    end: Option<Result<Finished>>,
    /// Whether an end was put in, which may have been taken since.
    has_ended: bool,
    waker: Option<Waker>,
}

/// The waiter's side.
#[derive(Debug)]
pub(crate) struct Waiter(pub(crate) Arc<Slot>);

/// An end that was put in, of which the waiter's task is told when this is dropped. What it does then is the program's own, as is what becomes of
/// an end that nobody waits for: neither may find the lock of a post office taken, or a turn, whose thread it runs on.
#[derive(Debug)]
#[must_use]
pub(crate) struct News {
    _slot: Arc<Slot>,
    waker: Option<Waker>,
}

impl Drop for News {
    fn drop(&mut self) {
        if let Some(waker) = self.waker.take() {
            // A panic must not end the thread that plays for everybody.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }
}

impl Slot {
    /// Puts the end in and wakes the waiter, if it is a thread.
    pub(crate) fn fill(self: &Arc<Slot>, end: Result<Finished>) -> News {
        let mut state = self.state();
        (state.end, state.has_ended) = (Some(end), true);
        let waker = state.waker.take();
        drop(state);
        self.ended.notify_all();
        News { _slot: Arc::clone(self), waker }
    }

    /// Says that nobody puts an end in any more. Where none was, the thread that was to do so has panicked, and the waiter is told that.
    pub(crate) fn forsake(self: &Arc<Slot>) {
        if !self.state().has_ended {
            drop(self.fill(Err(Error::aborted("the thread that carried the operation out panicked"))));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending for Waiter {
    fn is_done(&self) -> bool {
        self.0.state().end.is_some()
    }

    fn poll(&mut self, waker: &Waker) -> Option<Result<Finished>> {
        let mut state = self.0.state();
        if state.end.is_none() {
            state.waker = Some(waker.clone());
        }
        state.end.take()
    }

    fn wait(&mut self, limit: Option<Duration>) -> Option<Result<Finished>> {
        let open = |state: &mut State| state.end.is_none();
        let state = self.0.state();
        let mut state = match limit {
            Some(limit) => {
                self.0.ended.wait_timeout_while(state, limit, open).map_or_else(|e| e.into_inner().0, |s| s.0)
            }
            None => self.0.ended.wait_while(state, open).unwrap_or_else(PoisonError::into_inner),
        };
        state.end.take()
    }
}
