//! Who waits for whom: the first operation of each rank that has begun and not ended, and the peers it cannot end without. Messages are told of
//! in `message`.

use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::roster::{Company, Roster, Seat};
use super::{Finding, Place, message};
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
    /// Whether the rank goes no further before it has ended; what was begun ahead holds it up in nothing.
    holds_up: bool,
}

impl Wait<'_> {
    /// Whether it needs a rank that has not come to it, as far as anybody says.
    pub(super) fn is_for_others(&self) -> bool {
        [&self.on, &self.unknown, &self.without, &self.silent].iter().any(|ranks| !ranks.is_empty())
    }
}

/// Everything that holds a rank up for long. Where nothing does, collectives that were begun ahead are all that tells of others who are behind;
/// a message that was is no news, because receives are posted before there is anything to receive.
pub(super) fn waits<'d>(roster: &Roster<'d>, patience: Duration) -> Vec<Wait<'d>> {
    let mut waits = begun(roster, patience);
    let is_any_held_up = waits.iter().any(|wait| wait.holds_up);
    waits.retain(|wait| wait.holds_up || !(is_any_held_up || wait.entry.is_message));
    waits
}

/// Everything that has not ended for long.
fn begun<'d>(roster: &Roster<'d>, patience: Duration) -> Vec<Wait<'d>> {
    let mut found = Vec::new();
    for (at, company) in roster.companies.iter().enumerate() {
        for (&rank, seat) in &company.seats {
            let is_long = |entry: &&Entry| is_long(seat, entry, patience);
            let mut collectives = seat.collectives.values().flatten().copied().filter(|entry| is_waiting(entry));
            // Those behind the first wait for it, and whoever waits for one of them does.
            let is_awaited = collectives.clone().any(holds_up);
            let collective = collectives.next().filter(is_long);
            let messages = seat.messages.iter().copied().filter(|entry| is_waiting(entry)).filter(is_long);
            let messages = messages.take(MOST_MESSAGES);
            for entry in collective.into_iter().chain(messages) {
                let place = Place::of(rank, company.label(), entry, seat.age(entry));
                let missing = if entry.is_message {
                    message::peer(roster, company, (rank, seat), entry)
                } else {
                    absentees(roster, company, entry)
                };
                let (without, missing): (_, BTreeSet<_>) =
                    missing.into_iter().partition(|rank| company.is_without(*rank));
                let is_unknown = |rank: &usize| !entry.is_message && company.is_overwritten(*rank);
                let (unknown, on) = missing.into_iter().partition(is_unknown);
                let silent = silent(roster, company, seat, entry);
                let holds_up = if entry.is_message { holds_up(entry) } else { is_awaited };
                found.push(Wait { rank, company: at, entry, place, on, unknown, without, silent, holds_up });
            }
        }
    }
    found
}

/// For each rank that others wait for in a collective, what it did not call.
pub(super) fn absent(roster: &Roster<'_>, waits: &[Wait<'_>]) -> Vec<Finding> {
    let mut busy: BTreeMap<usize, &Place> = BTreeMap::new();
    for wait in waits {
        busy.entry(wait.rank).or_insert(&wait.place);
    }
    let mut found = Vec::new();
    for (at, here) in by_company(waits) {
        let here: Vec<&Wait<'_>> = here.iter().filter(|wait| !wait.entry.is_message).collect();
        let missing: BTreeSet<usize> = here.iter().flat_map(|wait| wait.on.iter().copied()).collect();
        let company = &roster.companies[at];
        // Mostly all who are missing are waited for by the same ranks: a copy of these for each would be as many places as both have ranks together.
        let mut shared: HashMap<Vec<usize>, Arc<[Place]>> = HashMap::new();
        for rank in missing {
            let waiting: Vec<usize> = (0..here.len()).filter(|wait| here[*wait].on.contains(&rank)).collect();
            let first = waiting.iter().map(|wait| here[*wait].entry.sequence).min().unwrap_or_default();
            let places = |waiting: &Vec<usize>| waiting.iter().map(|wait| here[*wait].place.clone()).collect();
            let waiting = match shared.entry(waiting) {
                Occupied(known) => Arc::clone(known.get()),
                Vacant(new) => {
                    let places = places(new.key());
                    Arc::clone(new.insert(places))
                }
            };
            found.push(absentee(company, (first, waiting), busy.get(&rank).copied(), rank));
        }
    }
    found
}

/// The waits of each group that has any, with the group's place in the roster.
fn by_company<'w, 'd>(waits: &'w [Wait<'d>]) -> impl Iterator<Item = (usize, &'w [Wait<'d>])> {
    // They were found group by group.
    let groups = waits.chunk_by(|one, other| one.company == other.company);
    groups.filter_map(|here| Some((here.first()?.company, here)))
}

/// `first` is the first number under which others wait for the rank.
fn absentee(
    company: &Company<'_>,
    (first, waiting): (u64, Arc<[Place]>),
    busy: Option<&Place>,
    rank: usize,
) -> Finding {
    let seat = company.seats.get(&rank);
    let last = seat.and_then(|seat| Some((seat, seat.last()?)));
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
        busy: busy.cloned(),
        waiting,
    }
}

/// The first operation of each group of which it is not known who has come to it, and the first that waits for ranks that do not have the group.
pub(super) fn unsure(roster: &Roster<'_>, waits: &[Wait<'_>]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, here) in by_company(waits) {
        let here: Vec<&Wait<'_>> = here.iter().collect();
        let group = || roster.companies[at].label();
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

/// The first operation of each group that every rank called and some have not finished.
pub(super) fn unfinished(roster: &Roster<'_>, waits: &[Wait<'_>], diverged: &BTreeSet<usize>) -> Vec<Finding> {
    let is_met = |wait: &&Wait<'_>| !wait.entry.is_message && !wait.is_for_others() && wait.entry.is_pending();
    let mut found = Vec::new();
    for (at, here) in by_company(waits).filter(|(at, _)| !diverged.contains(at)) {
        let company = &roster.companies[at];
        let Some(sequence) = here.iter().filter(is_met).map(|wait| wait.entry.sequence).min() else { continue };
        if company.members.iter().any(|rank| !company.seats.contains_key(rank)) {
            continue;
        }
        let waiting = here.iter().filter(is_met).filter(|wait| wait.entry.sequence == sequence);
        let is_done = |entries: &[&Entry]| entries.iter().all(|entry| entry.state == State::Done);
        let done = company.at(sequence).filter(|(_, entries)| is_done(entries)).map(|(rank, _)| rank).collect();
        let waiting = waiting.map(|wait| wait.place.clone()).collect();
        found.push(Finding::Unfinished { group: company.label(), waiting, done });
    }
    found
}

/// Whoever waited until something else ended it says as much as one that still waits.
pub(super) fn is_waiting(entry: &Entry) -> bool {
    let is_ended_waiting = |error: &str| ["timeout", "peer", "aborted"].contains(&error);
    entry.is_pending() || matches!(&entry.state, State::Failed(error) if is_ended_waiting(error))
}

/// Whether its rank waits for it, or did until it failed.
fn holds_up(entry: &Entry) -> bool {
    !entry.is_pending() || !entry.is_ahead
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

/// Messages of one rank in one group that wait; more of them tell nothing new.
const MOST_MESSAGES: usize = 1000;
