//! Messages that hold a rank up: whose peer does nothing about them, that anybody might send, and that both ends have called.

use std::collections::{BTreeMap, BTreeSet};

use super::roster::{Company, Roster, Seat};
use super::wait::{Wait, is_waiting};
use super::{Finding, Place};
use crate::dump::Entry;

/// What is found of messages.
pub(super) fn find(roster: &Roster<'_>, waits: &[Wait<'_>]) -> Vec<Finding> {
    let held_up: BTreeSet<usize> = waits.iter().map(|wait| wait.rank).collect();
    let lasts = lasts(roster);
    let messages = waits.iter().filter(|wait| wait.entry.is_message);
    messages.filter_map(|wait| of(roster, wait, &held_up, &lasts)).collect()
}

fn of(roster: &Roster<'_>, wait: &Wait<'_>, held_up: &BTreeSet<usize>, lasts: &Lasts<'_, '_>) -> Option<Finding> {
    let (company, place) = (&roster.companies[wait.company], wait.place.clone());
    let group = company.label();
    if let Some(&peer) = wait.on.first() {
        let last = || {
            let (company, seat, entry) = lasts.get(&peer)?;
            Some(Place::of(peer, company.label(), entry, seat.age(entry)))
        };
        return (!held_up.contains(&peer)).then(|| Finding::Unanswered { group, place, peer, last: last() });
    }
    // A dump of PyTorch's has entries for several messages at once, which name no peer.
    if wait.is_for_others() || !wait.entry.is_pending() || !matches!(&*wait.entry.kind, "send" | "recv") {
        return None;
    }
    let peer = wait.entry.peer.and_then(|peer| company.seats.get(&wait.rank)?.group.world_rank(peer));
    let sender = peer.or_else(|| company.seats.keys().copied().find(|other| meets(company, wait, *other)));
    Some(match sender {
        // The other end tells it.
        Some(peer) if wait.entry.kind == "send" && held_up.contains(&peer) => return None,
        Some(peer) => Finding::Undelivered { group, place, peer },
        None => {
            let is_free = |rank: &&usize| **rank != wait.rank && !held_up.contains(rank);
            let free = company.members.iter().filter(|rank| roster.dumps.contains_key(rank)).filter(is_free);
            Finding::Unsent { group, place, free: free.copied().collect() }
        }
    })
}

/// The peer of a message, unless it waits at the other end of it.
pub(super) fn peer(
    roster: &Roster<'_>,
    company: &Company<'_>,
    (rank, seat): (usize, &Seat<'_>),
    entry: &Entry,
) -> BTreeSet<usize> {
    let peer = entry.peer.and_then(|peer| seat.group.world_rank(peer)).filter(|peer| roster.dumps.contains_key(peer));
    peer.filter(|peer| !is_met(company, (rank, entry), *peer)).into_iter().collect()
}

fn meets(company: &Company<'_>, wait: &Wait<'_>, peer: usize) -> bool {
    peer != wait.rank && is_met(company, (wait.rank, wait.entry), peer)
}

/// Whether a peer waits at the other end of a message of a rank.
fn is_met(company: &Company<'_>, (rank, entry): (usize, &Entry), peer: usize) -> bool {
    let Some(theirs) = company.seats.get(&peer) else { return false };
    let other = if entry.kind == "send" { "recv" } else { "send" };
    theirs.messages.iter().any(|message| {
        let to = message.peer.and_then(|to| theirs.group.world_rank(to));
        let is_ours = to.is_none_or(|to| to == rank) && is_alike(entry.tag, message.tag);
        message.kind == other && is_waiting(message) && is_ours
    })
}

/// Whether two messages are under one tag, as far as both say.
fn is_alike(one: Option<u32>, other: Option<u32>) -> bool {
    one.zip(other).is_none_or(|(one, other)| one == other)
}

/// By their ranks, with the group and what they say of it.
type Lasts<'r, 'd> = BTreeMap<usize, (&'r Company<'d>, &'r Seat<'d>, &'d Entry)>;

/// What each rank called last in any group.
fn lasts<'r, 'd>(roster: &'r Roster<'d>) -> Lasts<'r, 'd> {
    let mut lasts = Lasts::new();
    for company in &roster.companies {
        for (&rank, seat) in &company.seats {
            let entries = seat.collectives.values().flatten().chain(&seat.messages).copied();
            let Some(last) = entries.max_by_key(|entry| entry.created_ns) else { continue };
            if lasts.get(&rank).is_none_or(|(_, _, known)| known.created_ns <= last.created_ns) {
                lasts.insert(rank, (company, seat, last));
            }
        }
    }
    lasts
}
