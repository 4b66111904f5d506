//! Ranks that wait for each other in a circle.

use std::collections::BTreeMap;

use super::Finding;
use super::roster::Roster;
use super::wait::Wait;

/// One circle, if there is one.
pub(super) fn find(roster: &Roster<'_>, waits: &[Wait<'_>]) -> Option<Finding> {
    let mut left: BTreeMap<usize, Vec<&Wait<'_>>> = BTreeMap::new();
    for wait in waits.iter().filter(|wait| !wait.on.is_empty() && roster.dumps.contains_key(&wait.rank)) {
        left.entry(wait.rank).or_default().push(wait);
    }
    // Who waits only for ranks that wait for nobody is in no circle; what is left leads into one.
    loop {
        let free: Vec<usize> = left
            .iter()
            .filter(|(_, waits)| !waits.iter().any(|wait| leads(wait, &left)))
            .map(|(rank, _)| *rank)
            .collect();
        if free.is_empty() {
            break;
        }
        left.retain(|rank, _| !free.contains(rank));
    }
    walk(&left).map(|circle| Finding::Deadlock { circle: circle.iter().map(|wait| wait.place.clone()).collect() })
}

/// From the lowest rank on until one comes again.
fn walk<'w, 'd>(left: &BTreeMap<usize, Vec<&'w Wait<'d>>>) -> Option<Vec<&'w Wait<'d>>> {
    let mut path: Vec<&Wait<'_>> = Vec::new();
    let mut rank = *left.keys().next()?;
    loop {
        if let Some(start) = path.iter().position(|wait| wait.rank == rank) {
            return Some(path.split_off(start));
        }
        let wait = left.get(&rank)?.iter().copied().find(|wait| leads(wait, left))?;
        path.push(wait);
        rank = *wait.on.iter().find(|peer| left.contains_key(peer))?;
    }
}

fn leads(wait: &Wait<'_>, left: &BTreeMap<usize, Vec<&Wait<'_>>>) -> bool {
    wait.on.iter().any(|peer| left.contains_key(peer))
}
