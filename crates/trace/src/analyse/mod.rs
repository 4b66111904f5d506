//! What the dumps of all ranks say together: who called something else, who never came, who waits for whom, who is late.
//!
//! Each question is a room of its own; `roster` is what all of them look at.

mod arrival;
mod clock;
mod deadlock;
mod divergence;
mod failure;
mod finding;
mod kind;
mod message;
mod report;
mod roster;
#[cfg(test)]
mod tests;
mod wait;

use std::collections::BTreeSet;
use std::time::Duration;

pub use arrival::Arrival;
pub(crate) use clock::Clocks;
pub use finding::{Finding, Place, Side};
pub use report::Report;
use roster::Roster;

use crate::dump::Dump;

/// What counts as something found.
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    patience: Duration,
}

impl Default for Options {
    /// Waiting counts from a second on.
    fn default() -> Options {
        Options { patience: Duration::from_secs(1) }
    }
}

impl Options {
    /// For how long a rank must have waited when its dump was taken. A dump that does not say when it was taken is taken to
    /// have waited.
    pub fn patience(mut self, patience: Duration) -> Options {
        self.patience = patience;
        self
    }
}

/// Compares the dumps of all ranks.
pub fn analyse(dumps: &[Dump]) -> Report {
    analyse_with(dumps, &Options::default())
}

/// Compares the dumps of all ranks, with what counts as something found.
pub fn analyse_with(dumps: &[Dump], options: &Options) -> Report {
    let roster = Roster::of(dumps);
    let clocks = Clocks::of(&roster);
    let waits = wait::waits(&roster, options.patience);
    let arrivals = arrival::arrivals(&roster, &clocks);
    let divergences = divergence::find(&roster);
    let is_of_now = |(_, finding): &&(usize, Finding)| matches!(finding, Finding::Divergence { is_over: false, .. });
    let diverged: BTreeSet<usize> = divergences.iter().filter(is_of_now).map(|(at, _)| *at).collect();
    let unfinished = wait::unfinished(&roster, &waits, &diverged);
    let mut findings: Vec<Finding> = divergences.into_iter().map(|(_, finding)| finding).collect();
    findings.extend(deadlock::find(&roster, &waits));
    findings.extend(wait::absent(&roster, &waits));
    findings.extend(message::find(&roster, &waits));
    findings.extend(wait::unsure(&roster, &waits));
    findings.extend(unfinished);
    findings.extend(failure::find(&roster));
    findings.extend(failure::no_dump(&roster, &waits));
    findings.extend(arrival::late(&arrivals, arrival::span(dumps)));
    // Stable: what is found first in a group stays first.
    findings.sort_by_key(Finding::weight);
    Report { ranks: dumps.len(), world_size: roster.world_size(), findings, arrivals }
}
