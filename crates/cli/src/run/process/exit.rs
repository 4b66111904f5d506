//! How a process ended.

use std::fmt;

use rustix::process::WaitStatus;
use signal_hook::consts::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};

use super::signals;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl Exit {
    /// The end of a Rust program whose main thread panicked.
    pub(crate) const PANICKED: Exit = Exit::Code(101);

    /// The end in a status that `wait` gave; none if the process goes on.
    pub(crate) fn of(status: WaitStatus) -> Option<Exit> {
        status.exit_status().map(Exit::Code).or_else(|| status.terminating_signal().map(Exit::Signal))
    }

    pub(crate) fn is_well(self) -> bool {
        self == Exit::Code(0)
    }

    /// Whether it ended by itself with an error. A code by which shells pass on that somebody asked for the end is none.
    pub(crate) fn is_error(self) -> bool {
        matches!(self, Exit::Code(code) if code != 0 && !signals::is_ending(code.saturating_sub(128)))
    }

    /// Whether it ended by itself and got as far as its own end, where it tidies up.
    pub(crate) fn is_orderly(self) -> bool {
        matches!(self, Exit::Code(_)) && self != Exit::PANICKED
    }

    /// Whether it was a fault of its own, as nobody asks a process to end by such a signal.
    pub(crate) fn is_crash(self) -> bool {
        matches!(self, Exit::Signal(SIGSEGV | SIGBUS | SIGILL | SIGFPE | SIGABRT | SIGSYS | SIGTRAP))
    }

    /// The exit code that passes it on, as shells do.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Code(code) => u8::try_from(code).unwrap_or(u8::MAX),
            Exit::Signal(signal) => signals::exit_code(signal),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(signal) => write!(f, "killed by {}", signals::name(*signal)),
        }
    }
}

#[cfg(test)]
mod tests {
    use signal_hook::consts::SIGTERM;

    use super::*;

    #[test]
    fn a_code_that_passes_on_a_request_to_end_is_no_error() {
        assert!([1, 4, 101, 126, 255].into_iter().all(|code| Exit::Code(code).is_error()));
        assert!([0, 130, 143].into_iter().all(|code| !Exit::Code(code).is_error()));
        assert!(!Exit::Signal(SIGTERM).is_error());
    }

    #[test]
    fn who_panics_or_is_killed_does_not_tidy_up() {
        assert!([0, 1, 143].into_iter().all(|code| Exit::Code(code).is_orderly()));
        assert!(![Exit::PANICKED, Exit::Signal(SIGTERM)].into_iter().any(Exit::is_orderly));
    }
}
