//! Ranks that wait for each other in a circle.

use std::collections::{BTreeMap, HashMap};

use super::Finding;
use super::roster::Roster;
use super::wait::Wait;

/// One circle, if there is one.
pub(super) fn find(roster: &Roster<'_>, waits: &[Wait<'_>]) -> Option<Finding> {
    let mut left: BTreeMap<usize, Vec<&Wait<'_>>> = BTreeMap::new();
    for wait in waits.iter().filter(|wait| !wait.on.is_empty() && roster.dumps.contains_key(&wait.rank)) {
        left.entry(wait.rank).or_default().push(wait);
    }
    clear(&mut left);
    walk(&left).map(|circle| Finding::Deadlock { circle: circle.iter().map(|wait| wait.place.clone()).collect() })
}

/// Takes out who waits only for ranks that wait for nobody, and then who waits only for those: they are in no circle, and what is left leads
/// into one.
fn clear(left: &mut BTreeMap<usize, Vec<&Wait<'_>>>) {
    // How many ways lead on from a rank, and who has one that leads to it.
    let mut ways: HashMap<usize, usize> = HashMap::new();
    let mut waiting: HashMap<usize, Vec<usize>> = HashMap::new();
    for (&rank, waits) in &*left {
        for peer in waits.iter().flat_map(|wait| &wait.on).filter(|peer| left.contains_key(peer)) {
            waiting.entry(*peer).or_default().push(rank);
            *ways.entry(rank).or_default() += 1;
        }
    }
    let mut free: Vec<usize> = left.keys().copied().filter(|rank| !ways.contains_key(rank)).collect();
    // Whom a rank that goes sets free follows from it alone: another look at all for each takes minutes where many wait in a row.
    while let Some(rank) = free.pop() {
        left.remove(&rank);
        for waiter in waiting.remove(&rank).unwrap_or_default() {
            let Some(count) = ways.get_mut(&waiter) else { continue };
            *count -= 1;
            if *count == 0 {
                free.push(waiter);
            }
        }
    }
}

/// From the lowest rank on until one comes again.
fn walk<'w, 'd>(left: &BTreeMap<usize, Vec<&'w Wait<'d>>>) -> Option<Vec<&'w Wait<'d>>> {
    let mut path: Vec<&'w Wait<'d>> = Vec::new();
    let mut places: HashMap<usize, usize> = HashMap::new();
    let mut rank = *left.keys().next()?;
    loop {
        if let Some(start) = places.insert(rank, path.len()) {
            return Some(path.split_off(start));
        }
        let next = |wait: &&'w Wait<'d>| Some((*wait, *wait.on.iter().find(|peer| left.contains_key(peer))?));
        let (wait, peer) = left.get(&rank)?.iter().find_map(next)?;
        path.push(wait);
        rank = peer;
    }
}
