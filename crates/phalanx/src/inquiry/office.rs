//! The office: the thread of a desk, and its end.

use std::fmt;
use std::io;
use std::mem;
use std::os::unix::net::UnixStream;
use std::process;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::desk::Desk;
use super::door::Door;
use super::visitor::Pages;

/// A desk with a thread, which ends when this is dropped by the process that opened it.
pub(crate) struct Office {
    /// Dropped first, which the desk notices.
    end: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

impl Office {
    /// Opens for whoever comes through these doors. A visit ends after `patience`.
    pub(crate) fn open(doors: Vec<Door>, pages: Box<Pages>, patience: Duration) -> io::Result<Office> {
        let (end, ended) = UnixStream::pair()?;
        let desk = Desk::new(ended, doors, pages, patience);
        let thread = thread::Builder::new().name("phalanx-desk".to_owned()).stack_size(STACK);
        let thread = thread.spawn(move || desk.serve())?;
        Ok(Office { end: Some(end), thread: Some(thread), process: process::id() })
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        self.end = None;
        let thread = self.thread.take();
        if process::id() != self.process {
            // A process that was forked has this memory, but not the thread.
            return mem::forget(thread);
        }
        if let Some(thread) = thread {
            // It waits for nobody, so this is soon. A panic in it is in the log already.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Office {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Office")
    }
}

/// Enough for pages, which are on the heap.
const STACK: usize = 512 << 10;

#[cfg(test)]
mod tests;
