//! The office: the thread of a desk, and its end.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use super::desk::Desk;
use super::door::{Door, Renewal};
use super::visitor::Pages;
use crate::companion::Companion;

/// A desk with a thread, which ends when this is dropped by the process that opened it.
pub(crate) struct Office {
    /// Dropped first, which the desk notices.
    _end: UnixStream,
    /// It waits for nobody, so its end is soon.
    _thread: Companion,
}

impl Office {
    /// Opens for whoever comes through these doors. A visit ends after `patience`.
    pub(crate) fn open(
        doors: (Vec<Door>, Option<Renewal>),
        pages: Box<Pages>,
        patience: Duration,
    ) -> io::Result<Office> {
        let (end, ended) = UnixStream::pair()?;
        let desk = Desk::new(ended, doors, pages, patience);
        let thread = thread::Builder::new().name("phalanx-desk".to_owned()).stack_size(STACK);
        Ok(Office { _end: end, _thread: Companion::start(thread, move || desk.serve())? })
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
