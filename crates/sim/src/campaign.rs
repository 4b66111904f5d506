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
    until_caught: bool,
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
    caught: Vec<(u64, ViolationKind)>,
    ticks: u64,
    bytes: u64,
}

/// Plays seed after seed. `progress` sees the tally after each; time is the caller's to take.
pub fn campaign(options: &Options, mut progress: impl FnMut(&Tally)) -> Tally {
    let mut tally = Tally::default();
    for index in 0..options.seeds {
        tally.add(&run(options.first_seed.wrapping_add(index), options.mutation));
        progress(&tally);
        if options.until_caught && !tally.caught.is_empty() {
            break;
        }
    }
    tally
}

impl Default for Options {
    fn default() -> Options {
        Options { first_seed: 0, seeds: 1000, mutation: None, until_caught: false }
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

    /// Whether to end as soon as the planted bug has shown: no unless set.
    pub fn until_caught(mut self, until_caught: bool) -> Options {
        self.until_caught = until_caught;
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

    /// The seeds in which something happened that must not although no bug was planted, and what: each is a bug of ours.
    pub fn violations(&self) -> &[(u64, ViolationKind)] {
        &self.violations
    }

    /// The seeds in which the planted bug showed, and as what.
    pub fn caught(&self) -> &[(u64, ViolationKind)] {
        &self.caught
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
            let found = if report.planted().is_some() { &mut self.caught } else { &mut self.violations };
            found.push((report.seed(), violation.kind()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Violation;

    #[test]
    fn a_violation_where_nothing_was_planted_is_a_bug_of_ours_also_while_a_planted_one_is_hunted() {
        let hang = Violation { kind: ViolationKind::Hang, rank: 0, what: "made by hand".to_owned() };
        let mutation = Some(Mutation::DroppedFold);
        let report = |seed, planted: Option<&str>| Report {
            seed,
            planted: planted.map(str::to_owned),
            violation: Some(hang.clone()),
            ..run(seed, mutation)
        };
        let (caught, ours) = (report(1, Some("in operation 0")), report(2, None));
        assert!(!caught.is_bug_of_ours() && ours.is_bug_of_ours());
        assert!(!Report { violation: None, ..ours.clone() }.is_bug_of_ours());
        let mut tally = Tally::default();
        tally.add(&caught);
        tally.add(&ours);
        assert_eq!(tally.caught(), [(1, ViolationKind::Hang)]);
        assert_eq!(tally.violations(), [(2, ViolationKind::Hang)]);
    }
}
