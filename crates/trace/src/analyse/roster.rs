//! The groups of all dumps, matched: who is in each, and what each of its ranks called in it, by number.

use std::collections::{BTreeMap, HashMap};

use crate::dump::{Dump, Entry, State, TracedGroup};

/// Every group, and every dump by its rank.
#[derive(Debug)]
pub(super) struct Roster<'d> {
    pub(super) companies: Vec<Company<'d>>,
    pub(super) dumps: BTreeMap<usize, &'d Dump>,
}

/// One group over all dumps.
#[derive(Debug)]
pub(super) struct Company<'d> {
    pub(super) name: &'d str,
    pub(super) description: &'d str,
    epoch: u32,
    /// Whether its members were written down.
    is_listed: bool,
    /// Ranks in the world, those without a dump too.
    pub(super) members: Vec<usize>,
    /// What its members with a dump say, by their ranks in the world.
    pub(super) seats: BTreeMap<usize, Seat<'d>>,
}

/// What one rank says of one group.
#[derive(Debug)]
pub(super) struct Seat<'d> {
    pub(super) dump: &'d Dump,
    pub(super) group: &'d TracedGroup,
    /// By their numbers; a number stands for several only where they were coalesced.
    pub(super) collectives: BTreeMap<u64, Vec<&'d Entry>>,
    pub(super) messages: Vec<&'d Entry>,
    /// Whether older operations are no longer remembered, which may have been of this group.
    has_forgotten: bool,
    is_over: bool,
}

/// What makes two ranks' groups the same one: name, epoch, generation and members. Those of one rank that are alike in this are told apart by
/// their order, which is all there is where no generation was written down.
type Key<'d> = (&'d str, u32, Option<u64>, Option<&'d [usize]>);

impl<'d> Roster<'d> {
    pub(super) fn of(dumps: &'d [Dump]) -> Roster<'d> {
        let mut roster = Roster { companies: Vec::new(), dumps: BTreeMap::new() };
        let mut places: HashMap<(Key<'d>, usize), usize> = HashMap::new();
        for dump in dumps {
            roster.dumps.insert(dump.rank, dump);
            let mut turns: HashMap<Key<'d>, usize> = HashMap::new();
            for (group, seat) in seats(dump) {
                let key = (&*group.name, group.epoch, group.generation, group.members.as_deref());
                let turn = turns.entry(key).or_default();
                let next = roster.companies.len();
                let at = *places.entry((key, *turn)).or_insert(next);
                *turn += 1;
                roster.seat(at, dump.rank, group, seat);
            }
        }
        roster
    }

    fn seat(&mut self, at: usize, rank: usize, group: &'d TracedGroup, seat: Seat<'d>) {
        if at == self.companies.len() {
            let TracedGroup { name, description, epoch, members, .. } = group;
            let (is_listed, members) = (members.is_some(), members.clone().unwrap_or_default());
            let seats = BTreeMap::new();
            self.companies.push(Company { name, description, epoch: *epoch, is_listed, members, seats });
        }
        let company = &mut self.companies[at];
        let is_member = group.members.as_ref().is_some_and(|members| members.contains(&rank));
        // Where nobody wrote down who is in the group, they are those who called something in it.
        if company.seats.insert(rank, seat).is_none() && !is_member {
            company.members.push(rank);
        }
    }

    /// How many ranks there are, as far as anybody says.
    pub(super) fn world_size(&self) -> usize {
        let said = self.dumps.values().filter_map(|dump| dump.world_size).max().unwrap_or(0);
        let seen = self.dumps.keys().next_back().map_or(0, |last| last + 1);
        said.max(seen)
    }
}

impl<'d> Company<'d> {
    /// What the group is called where people read it.
    pub(super) fn label(&self) -> String {
        label(self.name, self.description, self.epoch)
    }

    /// Every number that any rank remembers.
    pub(super) fn sequences(&self) -> impl Iterator<Item = u64> {
        let all: std::collections::BTreeSet<u64> =
            self.seats.values().flat_map(|seat| seat.collectives.keys().copied()).collect();
        all.into_iter()
    }

    /// Whether a rank with a dump does not have the group: it has left it, or came when there was another world.
    pub(super) fn is_without(&self, rank: usize) -> bool {
        self.is_listed && !self.seats.contains_key(&rank)
    }

    /// Whether a rank has a dump that does not say which collectives it has called here.
    pub(super) fn is_overwritten(&self, rank: usize) -> bool {
        self.seats.get(&rank).is_some_and(Seat::is_overwritten)
    }

    /// What each rank that remembers it called under a number.
    pub(super) fn at(&self, sequence: u64) -> impl Iterator<Item = (usize, &[&'d Entry])> {
        self.seats.iter().filter_map(move |(rank, seat)| Some((*rank, &**seat.collectives.get(&sequence)?)))
    }
}

impl<'d> Seat<'d> {
    /// The last collective that the rank called.
    pub(super) fn last(&self) -> Option<&'d Entry> {
        self.collectives.values().next_back()?.last().copied()
    }

    /// The number of the first collective that the rank has not called, as far as it is known.
    pub(super) fn next(&self) -> u64 {
        let after = self.last().map_or(0, |last| last.sequence.saturating_add(1));
        after.max(self.group.upcoming.unwrap_or_default())
    }

    /// Whether the rank has called the collective of this number.
    pub(super) fn has_called(&self, sequence: u64) -> bool {
        self.next() > sequence
    }

    /// Whether nothing here tells which collectives the rank has called: all that it remembers is messages, or is of other groups.
    fn is_overwritten(&self) -> bool {
        self.has_forgotten && self.collectives.is_empty() && self.group.upcoming.is_none()
    }

    /// Whether a part of what was coalesced under this number may be forgotten: a ring of entries is overwritten one by one, and whatever is
    /// gone was before the oldest that is left.
    pub(super) fn is_cut(&self, sequence: u64) -> bool {
        self.has_forgotten && self.collectives.keys().next() == Some(&sequence)
    }

    /// Whether a collective ended in an error here after which the group is over. One of the call alone is corrected, and all go on.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// How long an operation had taken when the dump was taken; none where that was not written down.
    pub(super) fn age(&self, entry: &Entry) -> Option<u64> {
        Some(self.dump.taken_ns?.saturating_sub(entry.created_ns))
    }
}

/// The groups of a dump and what was called in each.
fn seats(dump: &Dump) -> impl Iterator<Item = (&TracedGroup, Seat<'_>)> {
    // Looked up once: every group is asked for it again and again.
    let is_cut = dump.entries.iter().map(|entry| entry.record).min() > Some(0);
    let new = dump.groups.iter().map(|group| Seat {
        dump,
        group,
        collectives: BTreeMap::new(),
        messages: Vec::new(),
        has_forgotten: is_cut || group.forgotten > 0,
        is_over: false,
    });
    let mut seats: Vec<Seat<'_>> = new.collect();
    for entry in &dump.entries {
        let seat = &mut seats[entry.group];
        if entry.is_message {
            seat.messages.push(entry);
        } else {
            seat.is_over |= is_end(entry);
            seat.collectives.entry(entry.sequence).or_default().push(entry);
        }
    }
    dump.groups.iter().zip(seats)
}

/// Whether an operation ended in an error after which its group is over.
fn is_end(entry: &Entry) -> bool {
    matches!(&entry.state, State::Failed(error) if !["desync", "usage"].contains(&&**error))
}

/// What a group is called where people read it.
fn label(name: &str, description: &str, epoch: u32) -> String {
    let life = if epoch == 0 { String::new() } else { format!(" (epoch {epoch})") };
    match description {
        "" | "undefined" => format!("{name}{life}"),
        description => format!("{name} ({description}){life}"),
    }
}

impl TracedGroup {
    /// What the group is called where people read it.
    pub fn label(&self) -> String {
        label(&self.name, &self.description, self.epoch)
    }
}
