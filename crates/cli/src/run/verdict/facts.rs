//! What is known of a rank when an epoch is over. It travels between nodes as JSON, since one of them judges for all.

use std::path::PathBuf;
use std::time::Duration;

use super::{Accusation, Report};
use crate::run::output::{Panic, Remains};
use crate::run::process::exit::Exit;

/// What is known of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) rank: usize,
    pub(crate) pid: i32,
    pub(crate) host: String,
    pub(crate) state: State,
    /// How long after the start of its epoch it ended.
    pub(crate) after: Duration,
    pub(crate) report: Option<Report>,
    /// How a group of it failed before.
    pub(crate) accusation: Option<Accusation>,
    pub(crate) remains: Remains,
    /// Why it is believed to have been killed for want of memory.
    pub(crate) memory: Option<String>,
    /// Where all of its standard error can be read.
    pub(crate) log: Option<PathBuf>,
}

/// What a rank came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It ended by itself.
    Ended(Exit),
    /// It ended after it was asked to, and how; nothing where it did not end at all.
    Stopped(Option<Exit>),
    /// So did this one, and when the first failed a signal had halted it, so that it answered nobody.
    Halted,
}

impl Fact {
    /// Whether it ended by itself, and not well.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.state, State::Ended(exit) if !exit.is_well())
    }

    /// Whether something was wrong with it before it ended. Its groups tell the others first, and its process may take longer to
    /// end than theirs, so that it is stopped: then by a panic, by what it reported, or by an exit code of its own. That code may
    /// be no more than its answer to the request, unless the others said before that it `had_gone`.
    pub(crate) fn was_broken(&self, had_gone: bool) -> bool {
        match self.state {
            State::Ended(exit) => !exit.is_well(),
            State::Stopped(exit) => {
                let has_erred = had_gone && exit.is_some_and(Exit::is_error);
                self.remains.panic.is_some() || self.last_report().is_some() || has_erred
            }
            State::Halted => false,
        }
    }

    /// What it reported of its end. Who could not join ends by itself, so that one that ran on until it was stopped has joined
    /// after all, and whom it missed before is of no account.
    pub(crate) fn last_report(&self) -> Option<&Report> {
        let has_ended = matches!(self.state, State::Ended(_));
        self.report.as_ref().filter(|report| has_ended || report.missing.is_empty())
    }

    /// The panic that ended it, if one did: one that was caught does not. A process of many threads and much memory takes its
    /// time for that, so that it may be asked to end meanwhile.
    pub(crate) fn panic(&self) -> Option<&Panic> {
        let ends_so = matches!(self.state, State::Ended(Exit::PANICKED | Exit::Signal(ABORTED)) | State::Stopped(_));
        self.remains.panic.as_ref().filter(|_| ends_so)
    }
}

/// The signal of a Rust program that aborts on a panic.
const ABORTED: i32 = signal_hook::consts::SIGABRT;
