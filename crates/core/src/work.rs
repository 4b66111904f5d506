//! Work: an asynchronous operation in its caller's hands. It owns the buffers until it gives them back.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::Result;
use crate::backend::{Finished, Pending};

/// An operation under way, which ends in a `T`: its buffers, and whatever else it brings.
///
/// Dropping or leaking it is safe: the operation goes on, because its peers count on it, and its buffers are freed when
/// it ends.
#[must_use = "an operation's result and errors are only seen by waiting for it"]
pub struct Work<T> {
    pending: Box<dyn Pending>,
    finish: Option<Finish<T>>,
}

type Finish<T> = Box<dyn FnOnce(Finished) -> T + Send>;

impl<T> Work<T> {
    pub(crate) fn new(pending: Box<dyn Pending>, finish: impl FnOnce(Finished) -> T + Send + 'static) -> Work<T> {
        Work {
            pending,
            finish: Some(Box::new(finish)),
        }
    }

    /// Waits for the end; the operation's own timeout bounds it.
    pub fn wait(mut self) -> Result<T> {
        loop {
            let ended = self.pending.wait(None);
            if let Some(end) = self.complete(ended) {
                return end;
            }
        }
    }

    /// Waits for the end, but not longer than `limit`; gives the work back when it has not come by then.
    pub fn wait_timeout(mut self, limit: Duration) -> std::result::Result<Result<T>, Work<T>> {
        let ended = self.pending.wait(Some(limit));
        self.complete(ended).ok_or(self)
    }

    /// Whether the end has come, so that [`wait`](Work::wait) returns at once.
    pub fn is_done(&self) -> bool {
        self.pending.is_done()
    }

    fn complete(&mut self, ended: Option<Result<Finished>>) -> Option<Result<T>> {
        let finished = match ended? {
            Ok(finished) => finished,
            Err(error) => return Some(Err(error)),
        };
        self.finish.take().map(|finish| Ok(finish(finished)))
    }
}

impl<T> Future for Work<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let ended = self.pending.poll(context.waker());
        self.complete(ended).map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> fmt::Debug for Work<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}
