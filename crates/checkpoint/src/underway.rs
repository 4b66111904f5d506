//! A save that goes on in a thread of its own: begun, and waited for until it ends or for a while.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A thread whose end can be waited for with a bound.
pub(crate) struct Underway<T> {
    thread: JoinHandle<T>,
    /// Closes when the thread ends, however it does.
    ended: Receiver<()>,
    process: u32,
}

impl<T: Send + 'static> Underway<T> {
    pub(crate) fn begin(save: impl FnOnce() -> T + Send + 'static) -> io::Result<Underway<T>> {
        let (open, ended) = mpsc::channel();
        let run = move || {
            let _open: Sender<()> = open;
            save()
        };
        let thread = thread::Builder::new().name("phalanx-checkpoint".to_owned()).spawn(run)?;
        Ok(Underway { thread, ended, process: std::process::id() })
    }

    /// Waits until it ends.
    pub(crate) fn wait(self) -> thread::Result<T> {
        self.thread.join()
    }

    /// Waits until it ends, but no longer than this; none where it goes on.
    pub(crate) fn wait_for(self, patience: Duration) -> Option<thread::Result<T>> {
        let is_over = self.ended.recv_timeout(patience) != Err(RecvTimeoutError::Timeout);
        is_over.then(|| self.wait())
    }

    /// Whether this process was forked from the one that has the thread.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_goes_on_is_left_to_itself() {
        let (go_on, waits) = mpsc::channel::<()>();
        let underway = Underway::begin(move || waits.recv()).expect("a thread");
        assert!(underway.wait_for(Duration::ZERO).is_none());
        drop(go_on);
    }

    #[test]
    fn one_that_ends_is_waited_for() {
        let patience = Duration::from_secs(60);
        let ended = Underway::begin(|| 7).expect("a thread").wait_for(patience);
        assert!(matches!(ended, Some(Ok(7))));
        let ended = Underway::begin(|| std::panic::resume_unwind(Box::new(7))).expect("a thread").wait_for(patience);
        assert!(matches!(ended, Some(Err::<(), _>(_))));
    }
}
