//! Many seeds in a row, and what they came to.

use std::collections::BTreeMap;

use phalanx_core::ErrorKind;

use crate::fault::FaultKind;
use crate::mutation::Mutation;
use crate::report::{Ending, Report, ViolationKind};
use crate::run::run;

/// Which seeds to play, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Options {
    first_seed: u64,
    seeds: u64,
    mutation: Option<Mutation>,
    until_violation: bool,
}

/// What the seeds so far came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    seeds: u64,
    planted: u64,
    right: u64,
    answers: u64,
    errors: BTreeMap<ErrorKind, u64>,
    faults: BTreeMap<FaultKind, u64>,
    violations: Vec<(u64, ViolationKind)>,
    ticks: u64,
    bytes: u64,
}

/// Plays seed after seed. `progress` sees the tally after each; time is the caller's to take.
pub fn campaign(options: &Options, mut progress: impl FnMut(&Tally)) -> Tally {
    let mut tally = Tally::default();
    for index in 0..options.seeds {
        tally.add(&run(options.first_seed.wrapping_add(index), options.mutation));
        progress(&tally);
        if options.until_violation && !tally.violations.is_empty() {
            break;
        }
    }
    tally
}

impl Default for Options {
    fn default() -> Options {
        Options { first_seed: 0, seeds: 1000, mutation: None, until_violation: false }
    }
}

impl Options {
    /// The seed to begin with: 0 unless set.
    pub fn first_seed(mut self, first_seed: u64) -> Options {
        self.first_seed = first_seed;
        self
    }

    /// How many seeds, one after the other: 1000 unless set.
    pub fn seeds(mut self, seeds: u64) -> Options {
        self.seeds = seeds;
        self
    }

    /// The bug to plant: none unless set.
    pub fn mutation(mut self, mutation: Option<Mutation>) -> Options {
        self.mutation = mutation;
        self
    }

    /// Whether to end at the first violation: no unless set.
    pub fn until_violation(mut self, until_violation: bool) -> Options {
        self.until_violation = until_violation;
        self
    }
}

impl Tally {
    /// Seeds played.
    pub fn seeds(&self) -> u64 {
        self.seeds
    }

    /// Seeds whose program had a place for the bug to plant.
    pub fn planted(&self) -> u64 {
        self.planted
    }

    /// Seeds in which every rank ended with every answer right.
    pub fn right(&self) -> u64 {
        self.right
    }

    /// Calls that returned with the right answer, over all ranks.
    pub fn answers(&self) -> u64 {
        self.answers
    }

    /// How many ranks ended in each kind of error.
    pub fn errors(&self) -> &BTreeMap<ErrorKind, u64> {
        &self.errors
    }

    /// How many seeds each kind of fault struck.
    pub fn faults(&self) -> &BTreeMap<FaultKind, u64> {
        &self.faults
    }

    /// The seeds in which something happened that must not, and what.
    pub fn violations(&self) -> &[(u64, ViolationKind)] {
        &self.violations
    }

    /// How many of the violations are of this kind.
    pub fn count(&self, kind: ViolationKind) -> usize {
        self.violations.iter().filter(|(_, other)| *other == kind).count()
    }

    /// Virtual time, over all seeds; a tick stands for a microsecond.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Bytes that entered links and windows, over all seeds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn add(&mut self, report: &Report) {
        let right = report.endings().iter().all(|ending| *ending == Ending::Right);
        self.seeds += 1;
        self.planted += u64::from(report.planted().is_some());
        self.right += u64::from(right && report.violation().is_none());
        self.answers += report.answers();
        self.ticks += report.ticks();
        self.bytes += report.bytes();
        for ending in report.endings() {
            if let Ending::Failed { error, .. } = ending {
                *self.errors.entry(error.kind()).or_default() += 1;
            }
        }
        if let Some(fault) = report.fault() {
            *self.faults.entry(fault).or_default() += 1;
        }
        if let Some(violation) = report.violation() {
            self.violations.push((report.seed(), violation.kind()));
        }
    }
}
