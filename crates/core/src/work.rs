//! Work: an asynchronous operation in its caller's hands. It owns the buffers until it gives them back.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::backend::{Finished, Pending};
use crate::recorder::{Flight, Record};
use crate::{Error, OpKind, Result};

/// An operation under way, which ends in a `T`: its buffers, and whatever else it brings.
///
/// Dropping or leaking it is safe: the operation goes on, because its peers count on it, and its buffers are freed when
/// it ends. The result is given once: a work that was awaited by reference and is asked again ends in
/// [`Error::Usage`].
///
/// ```
/// # use phalanx_core::{Group, ReduceOp, Result};
/// # fn backward(group: &Group, layers: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>> {
/// let mut under_way = vec![];
/// for gradients in layers {
///     // Goes on while the gradients of the next layer are computed.
///     under_way.push(group.all_reduce_async(gradients, ReduceOp::Avg)?);
/// }
/// under_way.into_iter().map(|work| work.wait()).collect()
/// # }
/// ```
///
/// It is a future as well, for whoever has an executor: `work.await`.
#[must_use = "an operation's result and errors are only seen by waiting for it"]
pub struct Work<T> {
    pending: Box<dyn Pending>,
    flight: Flight,
    op: OpKind,
    /// The end, once somebody has looked at it without taking it.
    seen: Option<Box<Result<Finished>>>,
    /// What makes the result of the end; absent once the end was given.
    finish: Option<Finish<T>>,
}

/// An operation that was submitted, and its entry in the flight recorder.
pub(crate) struct Underway {
    pub(crate) pending: Box<dyn Pending>,
    pub(crate) flight: Flight,
}

type Finish<T> = Box<dyn FnOnce(Finished) -> T + Send>;

impl<T> Work<T> {
    pub(crate) fn new(op: OpKind, underway: Underway, finish: impl FnOnce(Finished) -> T + Send + 'static) -> Work<T> {
        let Underway { pending, flight } = underway;
        Work { pending, flight, op, seen: None, finish: Some(Box::new(finish)) }
    }

    /// Waits for the end; the operation's own timeout bounds it.
    ///
    /// # Errors
    ///
    /// As [every operation](crate::Group#errors), for what fails after the call; the buffers are gone. [`Usage`](Error::Usage) where the result
    /// was taken before.
    pub fn wait(mut self) -> Result<T> {
        loop {
            if let Some(end) = self.end(|pending| pending.wait(None)) {
                return end;
            }
        }
    }

    /// Waits for the end, but not longer than `limit`; gives the work back when it has not come by then.
    ///
    /// # Errors
    ///
    /// The work itself, where the end has not come by then. Why the operation failed stands in the result, as of [`wait`](Work::wait).
    pub fn wait_timeout(mut self, limit: Duration) -> std::result::Result<Result<T>, Work<T>> {
        self.end(|pending| pending.wait(Some(limit))).ok_or(self)
    }

    /// Whether the end has come, so that [`wait`](Work::wait) returns at once.
    pub fn is_done(&self) -> bool {
        self.finish.is_none() || self.seen.is_some() || self.pending.is_done()
    }

    /// Whether the end has come and is a good one; false once the result was taken.
    pub fn is_success(&mut self) -> bool {
        self.look().is_some_and(|end| end.is_ok())
    }

    /// Why the operation failed, once it has and while the result was not taken.
    pub fn error(&mut self) -> Option<&Error> {
        self.look()?.as_ref().err()
    }

    /// The rank that sent the message which was received, once it has come and while the result was not taken.
    pub fn source(&mut self) -> Option<usize> {
        self.look()?.as_ref().ok()?.source
    }

    /// The operation as the [flight recorder](crate::recorder) has it: when it was called, started and ended, and how it
    /// stands. None once so many newer ones came that it is forgotten.
    pub fn record(&self) -> Option<Record> {
        self.flight.record()
    }

    /// How long the operation was played, once it has ended and while it is remembered.
    pub fn duration(&self) -> Option<Duration> {
        let record = self.record()?;
        Some(record.ended?.saturating_sub(record.started.unwrap_or(record.created)))
    }

    /// The same work, whose result is changed by `change` when it is taken.
    pub fn map<U>(self, change: impl FnOnce(T) -> U + Send + 'static) -> Work<U>
    where
        T: 'static,
    {
        let Work { pending, flight, op, seen, finish } = self;
        let changed = |finish: Finish<T>| Box::new(move |finished| change(finish(finished))) as Finish<U>;
        Work { pending, flight, op, seen, finish: finish.map(changed) }
    }

    /// The end, if it has come, which stays here to be taken.
    fn look(&mut self) -> Option<&Result<Finished>> {
        if self.finish.is_some() && self.seen.is_none() && self.pending.is_done() {
            // An end that has come is given at once, so nobody is woken.
            self.seen = self.pending.poll(Waker::noop()).map(Box::new);
        }
        self.seen.as_deref()
    }

    /// The end, if `look` brings it.
    fn end(&mut self, look: impl FnOnce(&mut dyn Pending) -> Option<Result<Finished>>) -> Option<Result<T>> {
        let Some(finish) = self.finish.take() else {
            let expected = "must be asked for its result once only";
            return Some(Err(Error::usage(self.op, "work", "asked again", expected)));
        };
        match self.seen.take().map(|end| *end).or_else(|| look(&mut *self.pending)) {
            Some(ended) => Some(ended.map(finish)),
            None => {
                self.finish = Some(finish);
                None
            }
        }
    }
}

/// The task is woken by a thread that moves the group's operations, and is to go on elsewhere, as executors have it. One that goes on right there
/// holds up all that is queued, and waits in vain where it waits for some of that.
impl<T> Future for Work<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        self.end(|pending| pending.poll(context.waker())).map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> fmt::Debug for Work<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}
