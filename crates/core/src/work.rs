//! Work: an asynchronous operation in its caller's hands. It owns the buffers until it gives them back.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::backend::{Finished, Pending};
use crate::{Error, OpKind, Result};

/// An operation under way, which ends in a `T`: its buffers, and whatever else it brings.
///
/// Dropping or leaking it is safe: the operation goes on, because its peers count on it, and its buffers are freed when
/// it ends. The result is given once: a work that was awaited by reference and is asked again ends in
/// [`Error::Usage`].
#[must_use = "an operation's result and errors are only seen by waiting for it"]
pub struct Work<T> {
    pending: Box<dyn Pending>,
    op: OpKind,
    /// What makes the result of the end; absent once the end was given.
    finish: Option<Finish<T>>,
}

type Finish<T> = Box<dyn FnOnce(Finished) -> T + Send>;

impl<T> Work<T> {
    pub(crate) fn new(
        op: OpKind,
        pending: Box<dyn Pending>,
        finish: impl FnOnce(Finished) -> T + Send + 'static,
    ) -> Work<T> {
        Work { pending, op, finish: Some(Box::new(finish)) }
    }

    /// Waits for the end; the operation's own timeout bounds it.
    pub fn wait(mut self) -> Result<T> {
        loop {
            if let Some(end) = self.end(|pending| pending.wait(None)) {
                return end;
            }
        }
    }

    /// Waits for the end, but not longer than `limit`; gives the work back when it has not come by then.
    pub fn wait_timeout(mut self, limit: Duration) -> std::result::Result<Result<T>, Work<T>> {
        self.end(|pending| pending.wait(Some(limit))).ok_or(self)
    }

    /// Whether the end has come, so that [`wait`](Work::wait) returns at once.
    pub fn is_done(&self) -> bool {
        self.finish.is_none() || self.pending.is_done()
    }

    /// The end, if `look` brings it.
    fn end(&mut self, look: impl FnOnce(&mut dyn Pending) -> Option<Result<Finished>>) -> Option<Result<T>> {
        let Some(finish) = self.finish.take() else {
            let expected = "must be asked for its result once only";
            return Some(Err(Error::usage(self.op, "work", "asked again", expected)));
        };
        match look(&mut *self.pending) {
            Some(ended) => Some(ended.map(finish)),
            None => {
                self.finish = Some(finish);
                None
            }
        }
    }
}

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
