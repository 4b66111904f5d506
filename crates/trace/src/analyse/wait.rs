//! Who waits for whom: the first operation of each rank that has begun and not ended, and the peers it cannot end without.

use std::collections::BTreeSet;
use std::time::Duration;

use super::roster::{Company, Roster, Seat};
use super::{Finding, Place};
use crate::dump::{Entry, State};

/// One rank in one operation.
#[derive(Debug)]
pub(super) struct Wait<'d> {
    pub(super) rank: usize,
    /// The group's place in the roster.
    pub(super) company: usize,
    pub(super) entry: &'d Entry,
    pub(super) place: Place,
    /// The ranks that have not come to it, and have a dump that says so.
    pub(super) on: BTreeSet<usize>,
    /// The ranks of which nobody can say whether they have come, although they have a dump.
    pub(super) unknown: BTreeSet<usize>,
    /// The ranks that have a dump in which there is no such group.
    pub(super) without: BTreeSet<usize>,
    /// The ranks that have no dump, and whose part in it nobody knows.
    pub(super) silent: BTreeSet<usize>,
}

impl Wait<'_> {
    /// Whether it needs a rank that has not come to it, as far as anybody says.
    fn is_for_others(&self) -> bool {
        [&self.on, &self.unknown, &self.without, &self.silent].iter().any(|ranks| !ranks.is_empty())
    }
}

/// Everything that has waited for long.
pub(super) fn waits<'d>(roster: &Roster<'d>, patience: Duration) -> Vec<Wait<'d>> {
    let mut found = Vec::new();
    for (at, company) in roster.companies.iter().enumerate() {
        for (&rank, seat) in &company.seats {
            let is_long = |entry: &&Entry| is_long(seat, entry, patience);
            let collectives = seat.collectives.values().flatten().copied();
            let collective = collectives.into_iter().find(|entry| is_waiting(entry)).filter(is_long);
            let messages = seat.messages.iter().copied().filter(|entry| is_waiting(entry)).filter(is_long);
            let messages = messages.take(MOST_MESSAGES);
            for entry in collective.into_iter().chain(messages) {
                let place = Place::of(rank, company.label(), entry, seat.age(entry));
                let missing = if entry.is_message {
                    peer(roster, company, rank, seat, entry)
                } else {
                    absentees(roster, company, entry)
                };
                let (without, missing): (_, BTreeSet<_>) =
                    missing.into_iter().partition(|rank| company.is_without(*rank));
                let is_unknown = |rank: &usize| !entry.is_message && company.is_overwritten(*rank);
                let (unknown, on) = missing.into_iter().partition(is_unknown);
                let silent = silent(roster, company, seat, entry);
                found.push(Wait { rank, company: at, entry, place, on, unknown, without, silent });
            }
        }
    }
    found
}

/// For each rank that others wait for in a collective, what it did not call.
pub(super) fn absent(roster: &Roster<'_>, waits: &[Wait<'_>]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, company) in roster.companies.iter().enumerate() {
        let here: Vec<&Wait<'_>> = waits.iter().filter(|wait| wait.company == at && !wait.entry.is_message).collect();
        let missing: BTreeSet<usize> = here.iter().flat_map(|wait| wait.on.iter().copied()).collect();
        found.extend(missing.into_iter().map(|rank| absentee(company, &here, waits, rank)));
    }
    found
}

fn absentee(company: &Company<'_>, here: &[&Wait<'_>], waits: &[Wait<'_>], rank: usize) -> Finding {
    let waiting: Vec<&&Wait<'_>> = here.iter().filter(|wait| wait.on.contains(&rank)).collect();
    let seat = company.seats.get(&rank);
    let last = seat.and_then(|seat| Some((seat, seat.last()?)));
    let first = waiting.iter().map(|wait| wait.entry.sequence).min().unwrap_or_default();
    let next = seat.map(Seat::next).filter(|next| *next > 0);
    let sequence = next.unwrap_or(first);
    let kind = company.at(sequence).next().and_then(|(_, entries)| Some(entries.first()?.kind.clone()));
    Finding::Absent {
        group: company.label(),
        sequence,
        kind,
        rank,
        last: last.map(|(seat, entry)| Place::of(rank, company.label(), entry, seat.age(entry))),
        is_forgotten: last.is_none() && next.is_some(),
        busy: waits.iter().find(|wait| wait.rank == rank).map(|wait| wait.place.clone()),
        waiting: waiting.iter().map(|wait| wait.place.clone()).collect(),
    }
}

/// The first operation of each group of which it is not known who has come to it, and the first that waits for ranks that do not have the group.
pub(super) fn unsure(roster: &Roster<'_>, waits: &[Wait<'_>]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, company) in roster.companies.iter().enumerate() {
        let here: Vec<&Wait<'_>> = waits.iter().filter(|wait| wait.company == at).collect();
        let group = || company.label();
        found.extend(first(&here, |wait| &wait.unknown).map(|(ranks, waiting)| Finding::Unknown {
            group: group(),
            ranks,
            waiting,
        }));
        // What ended in another's failure says itself why.
        let open: Vec<&Wait<'_>> = here.into_iter().filter(|wait| is_open(wait.entry)).collect();
        found.extend(first(&open, |wait| &wait.without).map(|(ranks, waiting)| Finding::NoGroup {
            group: group(),
            ranks,
            waiting,
        }));
    }
    found
}

/// The first operation that waits for some ranks: these, and all who wait in it for them.
fn first<'w>(
    waits: &[&'w Wait<'_>],
    on: impl Fn(&'w Wait<'_>) -> &'w BTreeSet<usize>,
) -> Option<(Vec<usize>, Vec<Place>)> {
    let mut waiting = waits.iter().filter(|wait| !on(wait).is_empty());
    let first = waiting.clone().min_by_key(|wait| (wait.entry.is_message, wait.entry.sequence))?;
    let is_it =
        |wait: &&&Wait<'_>| (&wait.entry.kind, wait.entry.sequence) == (&first.entry.kind, first.entry.sequence);
    let places = waiting.by_ref().filter(is_it).map(|wait| wait.place.clone()).collect();
    Some((on(first).iter().copied().collect(), places))
}

/// Messages whose peer waits for nobody, and yet does nothing about them.
pub(super) fn unanswered(roster: &Roster<'_>, waits: &[Wait<'_>]) -> Vec<Finding> {
    let waiting: BTreeSet<usize> = waits.iter().filter(|wait| wait.is_for_others()).map(|wait| wait.rank).collect();
    let messages = waits.iter().filter(|wait| wait.entry.is_message);
    let idle = messages.filter_map(|wait| Some((wait, *wait.on.first().filter(|peer| !waiting.contains(peer))?)));
    idle.map(|(wait, peer)| Finding::Unanswered {
        group: wait.place.group.clone(),
        place: wait.place.clone(),
        peer,
        last: last_of(roster, peer),
    })
    .collect()
}

/// The first operation of each group that every rank called and some have not finished.
pub(super) fn unfinished(
    roster: &Roster<'_>,
    waits: &[Wait<'_>],
    diverged: impl Fn(&Company<'_>) -> bool,
) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, company) in roster.companies.iter().enumerate().filter(|(_, company)| !diverged(company)) {
        let pending = |wait: &&Wait<'_>| {
            wait.company == at && !wait.entry.is_message && !wait.is_for_others() && wait.entry.is_pending()
        };
        let Some(sequence) = waits.iter().filter(pending).map(|wait| wait.entry.sequence).min() else { continue };
        if company.members.iter().any(|rank| !company.seats.contains_key(rank)) {
            continue;
        }
        let waiting = waits.iter().filter(pending).filter(|wait| wait.entry.sequence == sequence);
        let is_done = |entries: &[&Entry]| entries.iter().all(|entry| entry.state == State::Done);
        let done = company.at(sequence).filter(|(_, entries)| is_done(entries)).map(|(rank, _)| rank).collect();
        let waiting = waiting.map(|wait| wait.place.clone()).collect();
        found.push(Finding::Unfinished { group: company.label(), waiting, done });
    }
    found
}

/// Whoever waited until something else ended it says as much as one that still waits.
fn is_waiting(entry: &Entry) -> bool {
    let is_ended_waiting = |error: &str| ["timeout", "peer", "aborted"].contains(&error);
    entry.is_pending() || matches!(&entry.state, State::Failed(error) if is_ended_waiting(error))
}

/// Whether nothing but time can have ended it.
fn is_open(entry: &Entry) -> bool {
    entry.is_pending() || matches!(&entry.state, State::Failed(error) if error == "timeout")
}

fn is_long(seat: &Seat<'_>, entry: &Entry, patience: Duration) -> bool {
    let long = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
    !entry.is_pending() || seat.age(entry).is_none_or(|age| age >= long)
}

/// The members of the group that have a dump and did not call this. Who failed before has come no further for that reason.
fn absentees(roster: &Roster<'_>, company: &Company<'_>, entry: &Entry) -> BTreeSet<usize> {
    let is_excused = |seat: &Seat<'_>| seat.has_called(entry.sequence) || seat.is_over();
    let told = company.members.iter().filter(|rank| roster.dumps.contains_key(rank));
    told.filter(|rank| !company.seats.get(rank).is_some_and(is_excused)).copied().collect()
}

/// The ranks of an operation that have no dump.
fn silent(roster: &Roster<'_>, company: &Company<'_>, seat: &Seat<'_>, entry: &Entry) -> BTreeSet<usize> {
    let peer = entry.peer.and_then(|peer| seat.group.world_rank(peer)).filter(|_| entry.is_message);
    let all = if entry.is_message { &[] } else { &company.members[..] };
    all.iter().copied().chain(peer).filter(|rank| !roster.dumps.contains_key(rank)).collect()
}

/// The peer of a message, unless it waits at the other end of it.
fn peer(roster: &Roster<'_>, company: &Company<'_>, rank: usize, seat: &Seat<'_>, entry: &Entry) -> BTreeSet<usize> {
    let peer = entry.peer.and_then(|peer| seat.group.world_rank(peer)).filter(|peer| roster.dumps.contains_key(peer));
    let other = if entry.kind == "send" { "recv" } else { "send" };
    let meets = |peer: &usize| {
        let Some(theirs) = company.seats.get(peer) else { return false };
        theirs.messages.iter().any(|message| {
            let to = message.peer.and_then(|to| theirs.group.world_rank(to));
            let is_ours = to.is_none_or(|to| to == rank) && is_alike(entry.tag, message.tag);
            message.kind == other && is_waiting(message) && is_ours
        })
    };
    peer.filter(|peer| !meets(peer)).into_iter().collect()
}

/// Whether two messages are under one tag, as far as both say.
fn is_alike(one: Option<u32>, other: Option<u32>) -> bool {
    one.zip(other).is_none_or(|(one, other)| one == other)
}

/// What a rank called last in any group.
fn last_of(roster: &Roster<'_>, rank: usize) -> Option<Place> {
    let seats = roster.companies.iter().filter_map(|company| Some((company, company.seats.get(&rank)?)));
    let all = seats.flat_map(|(company, seat)| {
        let entries = seat.collectives.values().flatten().chain(&seat.messages);
        entries.map(move |entry| (company, seat, *entry))
    });
    let (company, seat, entry) = all.max_by_key(|(_, _, entry)| entry.created_ns)?;
    Some(Place::of(rank, company.label(), entry, seat.age(entry)))
}

/// Messages of one rank in one group that wait; more of them tell nothing new.
const MOST_MESSAGES: usize = 1000;
