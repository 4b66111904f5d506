//! What failed by the ranks' own account, and who gives no account at all.

use std::collections::BTreeMap;

use super::roster::{Company, Roster};
use super::wait::Wait;
use super::{Finding, Place};
use crate::dump::State;

/// What the groups said of their first failures, and the operations that ended in an error.
pub(super) fn find(roster: &Roster<'_>) -> Vec<Finding> {
    roster.companies.iter().flat_map(|company| verdicts(company).chain(failed(company)).collect::<Vec<_>>()).collect()
}

fn verdicts(company: &Company<'_>) -> impl Iterator<Item = Finding> {
    let mut said: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (&rank, seat) in &company.seats {
        if let Some(verdict) = &seat.group.verdict {
            said.entry(verdict.clone()).or_default().push(rank);
        }
    }
    let group = company.label();
    said.into_iter().map(move |(verdict, ranks)| Finding::Verdict { group: group.clone(), verdict, ranks })
}

/// The first failure of each rank, those of one kind together.
fn failed(company: &Company<'_>) -> impl Iterator<Item = Finding> {
    let mut failed: BTreeMap<String, Vec<Place>> = BTreeMap::new();
    for (&rank, seat) in &company.seats {
        let entries = seat.collectives.values().flatten().chain(&seat.messages);
        let first = entries.filter(|entry| matches!(entry.state, State::Failed(_))).min_by_key(|entry| entry.record);
        if let Some((entry, State::Failed(error))) = first.map(|entry| (entry, &entry.state)) {
            let place = Place::of(rank, company.label(), entry, seat.age(entry));
            failed.entry(error.clone()).or_default().push(place);
        }
    }
    let group = company.label();
    failed.into_iter().map(move |(error, places)| Finding::Failed { group: group.clone(), error, places })
}

/// The ranks without a dump, and who waits in an operation of theirs that all others have come to.
pub(super) fn no_dump(roster: &Roster<'_>, waits: &[Wait<'_>]) -> Option<Finding> {
    let members = roster.companies.iter().flat_map(|company| company.members.iter().copied());
    let mut ranks: Vec<usize> = (0..roster.world_size()).chain(members).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks.retain(|rank| !roster.dumps.contains_key(rank));
    // A wait that a failure elsewhere has ended says no more of the others that had not come: one without a dump may be what failed.
    let concerns = |wait: &&Wait<'_>| !wait.silent.is_empty() && (wait.on.is_empty() || wait.place.is_aborted);
    let waiting = waits.iter().filter(concerns).map(|wait| wait.place.clone()).collect();
    (!ranks.is_empty()).then_some(Finding::NoDump { ranks, waiting })
}
