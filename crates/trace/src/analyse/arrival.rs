//! Who comes late: for each operation that all must come to, when each rank called it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Finding;
use super::clock::Clocks;
use super::kind;
use super::roster::{Company, Roster};
use crate::dump::{Dump, Entry};

/// How one rank came to the operations that all had to come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Arrival {
    /// The rank in the world.
    pub rank: usize,
    /// How many such operations every rank remembers.
    pub operations: u64,
    /// In how many of them it was the last to come.
    pub last: u64,
    /// How long after the first rank it came, in all.
    pub delay_ns: u64,
    /// How long most of the others waited for it, in all.
    pub caused_ns: u64,
}

pub(super) fn arrivals(roster: &Roster<'_>, clocks: &Clocks) -> Vec<Arrival> {
    let mut arrivals: BTreeMap<usize, Arrival> = BTreeMap::new();
    for company in roster.companies.iter().filter(|company| company.seats.len() > 1) {
        for sequence in company.sequences() {
            if let Some(times) = times(company, sequence, clocks) {
                count(&mut arrivals, times);
            }
        }
    }
    arrivals.into_values().collect()
}

/// The one rank that the others wait for, where it costs more than a little beyond what all others together do.
pub(super) fn late(arrivals: &[Arrival], span_ns: u64) -> Option<Finding> {
    let total: u64 = arrivals.iter().map(|arrival| arrival.caused_ns).fold(0, u64::saturating_add);
    let worst = arrivals.iter().max_by_key(|arrival| arrival.caused_ns)?;
    let Arrival { rank, operations, last: times, caused_ns, .. } = *worst;
    let is_often = operations >= FEW && times > operations / 2;
    // Ranks of which now one and now another comes last lose the same, whoever is a little more often that one.
    let more_ns = caused_ns.saturating_sub(total.saturating_sub(caused_ns));
    let costs = more_ns >= LITTLE_NS && more_ns >= span_ns / 100 * PERCENT;
    (is_often && costs).then_some(Finding::Late { rank, times, operations, caused_ns, span_ns })
}

/// The time from the first call to the last sign of life.
pub(super) fn span(dumps: &[Dump]) -> u64 {
    let of = |dump: &Dump| {
        let begin = dump.entries.iter().map(|entry| entry.created_ns).min()?;
        let end = dump.entries.iter().map(|entry| entry.ended_ns.unwrap_or(entry.created_ns)).max()?;
        Some(end.saturating_sub(begin))
    };
    dumps.iter().filter_map(of).max().unwrap_or(0)
}

/// When each rank called an operation, the earliest first; none unless all that have a dump called the same alone.
fn times(company: &Company<'_>, sequence: u64, clocks: &Clocks) -> Option<Vec<(u64, usize)>> {
    let mut times = Vec::with_capacity(company.seats.len());
    let mut name: Option<&str> = None;
    for (rank, entries) in company.at(sequence) {
        let [Entry { kind, created_ns, .. }] = entries else { return None };
        if !kind::is_meeting(kind) || *created_ns == 0 || name.is_some_and(|name| name != kind) {
            return None;
        }
        name = Some(kind);
        times.push((clocks.common(rank, *created_ns), rank));
    }
    times.sort_unstable();
    (times.len() == company.seats.len()).then_some(times)
}

fn count(arrivals: &mut BTreeMap<usize, Arrival>, times: Vec<(u64, usize)>) {
    let (Some(&(first, _)), Some((&(latest, last), others))) = (times.first(), times.split_last()) else { return };
    let middle = others.get(others.len() / 2).map_or(latest, |(time, _)| *time);
    for (time, rank) in times {
        let arrival = arrivals.entry(rank).or_insert(Arrival { rank, ..Arrival::default() });
        arrival.operations += 1;
        arrival.delay_ns = arrival.delay_ns.saturating_add(time - first);
        if rank == last {
            arrival.last += 1;
            arrival.caused_ns = arrival.caused_ns.saturating_add(latest - middle);
        }
    }
}

/// Fewer operations say nothing.
const FEW: u64 = 5;
/// Less than this in all is no loss.
const LITTLE_NS: u64 = 1_000_000;
/// Less than this part of the time is none either.
const PERCENT: u64 = 5;
