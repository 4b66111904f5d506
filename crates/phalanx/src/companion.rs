//! A thread beside a program's own, which somebody has: it is waited for when that is dropped, unless a forked process drops it.

use std::io;
use std::mem;
use std::process;
use std::thread::{self, JoinHandle};

/// A thread that is on its way to its end when this is dropped: whoever has it says so first, by a field above this one.
pub(crate) struct Companion {
    thread: Option<JoinHandle<()>>,
    process: u32,
}

impl Companion {
    /// Has `what` done by a thread like `thread`.
    pub(crate) fn start(thread: thread::Builder, what: impl FnOnce() + Send + 'static) -> io::Result<Companion> {
        Ok(Companion { thread: Some(thread.spawn(what)?), process: process::id() })
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if process::id() == self.process {
            // A panic in it is in the log already.
            let _ = thread.join();
        } else {
            // A process that was forked has this memory, but not the thread.
            mem::forget(thread);
        }
    }
}
