//! Sleeping on a word until somebody changes it: the futex of Linux.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::thread::futex::{self, Flags, Timespec};

/// Sleeps while `word` is `value`, at most this long. It may return early: the caller looks again in any case.
pub(crate) fn wait(word: &AtomicU32, value: u32, limit: Duration, scope: Scope) {
    let limit = Timespec::try_from(limit).ok();
    // Each way to fail is a reason to look again: the word has changed, time is up, or a signal came.
    let _ = futex::wait(word, scope.flags(), value, limit.as_ref());
}

/// Wakes all that sleep on `word`.
pub(crate) fn wake_all(word: &AtomicU32, scope: Scope) {
    let woken = futex::wake(word, scope.flags(), i32::MAX as u32);
    debug_assert!(woken.is_ok(), "waking on a word that is mapped and aligned");
}

/// Who may sleep on a word.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scope {
    /// Threads of this process.
    Process,
    /// Threads of every process that maps it.
    Host,
}

impl Scope {
    fn flags(self) -> Flags {
        match self {
            Scope::Process => Flags::PRIVATE,
            Scope::Host => Flags::empty(),
        }
    }
}
