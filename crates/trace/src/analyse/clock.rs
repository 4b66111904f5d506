//! The clocks of all hosts as one. Ranks leave an operation that all must come to at nearly the same moment, so the middle of the
//! differences there is the difference of the clocks. Ranks of one host have one clock.

use std::collections::BTreeMap;

use super::kind;
use super::roster::{Company, Roster};
use crate::dump::Dump;

/// How far each rank's clock is ahead of that of the lowest rank, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    ahead: BTreeMap<usize, i64>,
}

impl Clocks {
    pub(crate) fn of_dumps(dumps: &[Dump]) -> Clocks {
        Clocks::of(&Roster::of(dumps))
    }

    pub(super) fn of(roster: &Roster<'_>) -> Clocks {
        let mut clocks = Clocks::default();
        for &rank in roster.dumps.keys() {
            // Whoever nobody leads to is a beginning of its own.
            if !clocks.ahead.contains_key(&rank) {
                clocks.set(roster, rank, 0);
                while let Some((rank, ahead)) = roster.companies.iter().find_map(|company| clocks.next(company)) {
                    clocks.set(roster, rank, ahead);
                }
            }
        }
        clocks
    }

    /// A time of a rank by the clock of all.
    pub(crate) fn common(&self, rank: usize, time: u64) -> u64 {
        time.saturating_add_signed(self.ahead.get(&rank).map_or(0, |ahead| ahead.saturating_neg()))
    }

    fn set(&mut self, roster: &Roster<'_>, rank: usize, ahead: i64) {
        let host = |rank: &usize| roster.dumps.get(rank)?.host_name.as_ref();
        let ours = host(&rank);
        let shares = |other: &&usize| **other == rank || (ours.is_some() && host(other) == ours);
        self.ahead.extend(roster.dumps.keys().filter(shares).map(|other| (*other, ahead)));
    }

    /// A member whose clock follows from that of another.
    fn next(&self, company: &Company<'_>) -> Option<(usize, i64)> {
        let (known, ahead) = company.seats.keys().find_map(|rank| Some((*rank, *self.ahead.get(rank)?)))?;
        let unknown = company.seats.keys().filter(|rank| !self.ahead.contains_key(rank));
        unknown.into_iter().find_map(|rank| Some((*rank, ahead.saturating_add(difference(company, known, *rank)?))))
    }
}

/// How much later one rank says that the operations of all ended than another.
fn difference(company: &Company<'_>, known: usize, unknown: usize) -> Option<i64> {
    let [ours, theirs] = [known, unknown].map(|rank| &company.seats[&rank].collectives);
    let mut differences: Vec<i64> = Vec::new();
    for (sequence, entries) in ours {
        let ended = |entry: &&crate::Entry| kind::is_meeting(&entry.kind).then_some(entry.ended_ns).flatten();
        let one = entries.last().and_then(ended);
        let other = theirs.get(sequence).and_then(|entries| entries.last()).and_then(ended);
        if let (Some(one), Some(other)) = (one, other) {
            differences.push(i64::try_from(i128::from(other) - i128::from(one)).ok()?);
        }
    }
    differences.sort_unstable();
    differences.get(differences.len() / 2).copied()
}
