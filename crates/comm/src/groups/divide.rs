//! A world's ranks divided into groups: that all ask for the same, and what each one's part is.

use std::time::Instant;

use phalanx_core::store::Store;
use phalanx_core::{Desync, Error, Group, Ranks, Result, fnv};

use super::formation::Part;
use super::ledger::Turn;
use super::parts::Parts;
use crate::rendezvous::bytes::{Reader, put_bytes};
use crate::rendezvous::{Meeting, World};
use crate::wiring::Wiring;

/// What a rank asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    /// The function that was called.
    pub(super) call: &'static str,
    /// The same in words that all ranks must share.
    pub(super) what: String,
    /// Where each rank says itself where it belongs.
    pub(super) colour: Option<u32>,
    pub(super) key: i64,
}

impl World {
    /// The group of these ranks of the world, numbered in this order; none for a rank that is not among them.
    ///
    /// Every rank calls this, unless the wiring says [`members_only`](Wiring::members_only).
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a rank that is not in the world or given twice, once all have asked for that,
    /// [`Desync`](phalanx_core::ErrorKind::Desync) where another rank asks for something else, and all of [`wire`](World::wire).
    pub fn subgroup(&self, ranks: &[usize], wiring: &Wiring) -> Result<Option<Group>> {
        let parts = Parts::listed("subgroup", vec![ranks.to_vec()], self.size());
        self.divide(Ask::new("subgroup", Ranks(ranks).named()), parts, wiring)
    }

    /// The group of the list that this rank is in; none where it is in no list. Lists must not overlap.
    ///
    /// # Errors
    ///
    /// As [`subgroup`](World::subgroup); a rank in two lists is named.
    pub fn groups_of(&self, lists: &[Vec<usize>], wiring: &Wiring) -> Result<Option<Group>> {
        let parts = Parts::listed("groups_of", lists.to_vec(), self.size());
        let named: Vec<String> = lists.iter().map(|list| Ranks(list).to_string()).collect();
        self.divide(Ask::new("groups_of", format!("ranks {}", named.join(" / "))), parts, wiring)
    }

    /// The group of this rank among groups of `size` neighbouring ranks each.
    ///
    /// # Errors
    ///
    /// As [`subgroup`](World::subgroup), and where `size` does not divide the size of the world.
    pub fn equal_groups(&self, size: usize, wiring: &Wiring) -> Result<Group> {
        let parts = Parts::equal("equal_groups", size, self.size());
        self.part_for_all(Ask::new("equal_groups", format!("size {size}")), parts, wiring)
    }

    /// The group of the ranks on this rank's host.
    ///
    /// # Errors
    ///
    /// As [`wire`](World::wire).
    pub fn host_group(&self, wiring: &Wiring) -> Result<Group> {
        let parts = Parts::of_hosts(self.layout().hosts());
        self.part_for_all(Ask::new("host_group", "each host".to_owned()), Ok(parts), wiring)
    }

    /// The group of the ranks that give the same colour, numbered by their keys, and those of one key as in the world; none
    /// for a rank without a colour. Every rank of the world calls this.
    ///
    /// # Errors
    ///
    /// As [`subgroup`](World::subgroup).
    pub fn split(&self, colour: impl Into<Option<u32>>, key: i64, wiring: &Wiring) -> Result<Option<Group>> {
        let everyone: Vec<usize> = (0..self.size()).collect();
        self.split_among(&everyone, (colour.into(), key), wiring)
    }

    /// The same among the ranks of `parent`, a group of this world; ranks of one key are numbered as in the parent. Every rank
    /// of the parent calls this.
    ///
    /// # Errors
    ///
    /// As [`subgroup`](World::subgroup), and where this rank of the world is not in the parent, or the parent is of before the world
    /// [changed](World::reconfigure).
    pub fn split_group(
        &self,
        parent: &Group,
        colour: impl Into<Option<u32>>,
        key: i64,
        wiring: &Wiring,
    ) -> Result<Option<Group>> {
        // One from before a change of the world may have given this rank the same number, and another one not.
        if parent.epoch() != self.epoch() || parent.world_rank(parent.rank()) != Some(self.rank()) {
            let (value, expected) = (format!("{:?}", parent.name()), "must be a group of this world");
            return Err(Error::usage("split_group", "parent", value, expected));
        }
        self.split_among(parent.members(), (colour.into(), key), wiring)
    }

    fn split_among(
        &self,
        among: &[usize],
        (colour, key): (Option<u32>, i64),
        wiring: &Wiring,
    ) -> Result<Option<Group>> {
        let what = if wiring.is_for_members_only() { "colours of members only" } else { "colours" };
        let ask = Ask { colour, key, ..Ask::new("split", what.to_owned()) };
        let agreed = self.agree(&ask, among, wiring)?;
        if wiring.is_for_members_only() {
            let expected = "must be off: every rank says where it belongs";
            return Err(Error::usage("split", "members_only", true, expected));
        }
        let colours: Vec<_> = agreed.asks.iter().map(|ask| (ask.colour, ask.key)).collect();
        let parts = Parts::of_colours(&colours);
        let mine = among.iter().position(|&rank| rank == self.rank()).and_then(|seat| parts.part_of(seat));
        let Some((at, seats)) = mine else { return Ok(None) };
        let members = seats.iter().map(|&seat| among[seat]).collect();
        agreed.form(self, (at, parts.len()), members, wiring).map(Some)
    }

    /// This rank's part of a division in which every rank has one.
    pub(super) fn part_for_all(&self, ask: Ask, parts: Result<Parts>, wiring: &Wiring) -> Result<Group> {
        let call = ask.call;
        let group = self.divide(ask, parts, wiring)?;
        group.ok_or_else(|| Error::usage(call, "rank", self.rank(), "must be in a group"))
    }

    /// What cannot be formed is told to the others as well, who may have asked for something else: a rank that kept it to
    /// itself would be waited for, and be behind the others from then on.
    fn divide(&self, ask: Ask, parts: Result<Parts>, wiring: &Wiring) -> Result<Option<Group>> {
        let parts = match parts {
            Err(usage) if !wiring.is_for_members_only() => return self.agree_with_all(&ask, wiring).and(Err(usage)),
            parts => parts?,
        };
        let mine = parts.part_of(self.rank());
        let agreed = match (wiring.is_for_members_only(), mine) {
            (true, None) => return Ok(None),
            (true, Some((_, members))) => self.unasked(&ask, members, wiring)?,
            (false, _) => self.agree_with_all(&ask, wiring)?,
        };
        let Some((at, members)) = mine else { return Ok(None) };
        agreed.form(self, (at, parts.len()), members.to_vec(), wiring).map(Some)
    }

    fn agree_with_all(&self, ask: &Ask, wiring: &Wiring) -> Result<Agreed<'_>> {
        self.agree(ask, &(0..self.size()).collect::<Vec<_>>(), wiring)
    }

    /// Hears from all of these ranks what they ask for, which must be the same.
    fn agree(&self, ask: &Ask, among: &[usize], wiring: &Wiring) -> Result<Agreed<'_>> {
        let began = Instant::now();
        let name = wiring.chosen_name().unwrap_or_default();
        let place = if among.len() == self.size() { name.to_owned() } else { format!("{}/{name}", list_hash(among)) };
        let (turn, scope) = self.claim_place(ask.call, "every", &place)?;
        let seat = among.iter().position(|&rank| rank == self.rank()).unwrap_or(among.len());
        let meeting = Meeting::new(scope.clone(), "ask", seat, among.len());
        let met = meeting.meet(&ask.encode(wiring), wiring.patience());
        let cards = met.map_err(|error| error.among(among).during(&format!("forming groups by {}", ask.call)))?;
        meeting.end(wiring.patience().saturating_sub(began.elapsed()));
        let asks = cards.iter().map(|card| Ask::decode(card)).collect::<Option<Vec<_>>>();
        let asks = asks.ok_or_else(|| Error::setup("forming groups", "a rank runs another version of this library"))?;
        let number = u32::try_from(turn.generation).unwrap_or(u32::MAX);
        match asks.iter().position(|other| other.what != asks[seat].what) {
            Some(peer) => {
                let (ours, theirs) = (asks[seat].what.clone(), asks[peer].what.clone());
                let (rank, peer, field) = (self.rank(), among[peer], "groups");
                Err(Desync { sequence: number, rank, peer, field, ours, theirs, moved: false, site: None }.into())
            }
            None => Ok(Agreed { asks, scope, turn, began }),
        }
    }

    /// Where the members of a group meet without having heard what others ask for.
    fn unasked(&self, ask: &Ask, members: &[usize], wiring: &Wiring) -> Result<Agreed<'_>> {
        let began = Instant::now();
        let place = format!("{}/{}", list_hash(members), wiring.chosen_name().unwrap_or_default());
        let (turn, scope) = self.claim_place(ask.call, "members", &place)?;
        Ok(Agreed { asks: vec![], scope, turn, began })
    }
}

/// That ranks ask for the same, and where those of each part meet.
struct Agreed<'a> {
    asks: Vec<Asked>,
    scope: Store,
    turn: Turn<'a>,
    began: Instant,
}

impl Agreed<'_> {
    fn form(self, world: &World, (at, parts): (usize, usize), members: Vec<usize>, wiring: &Wiring) -> Result<Group> {
        let name = match wiring.chosen_name() {
            Some(name) if parts > 1 => format!("{name}/{at}"),
            Some(name) => name.to_owned(),
            None => Ranks(&members).named(),
        };
        let left = wiring.patience().saturating_sub(self.began.elapsed());
        let (scope, generation) = (self.scope.scope(&at.to_string()), self.turn.generation);
        let part = Part { members, name, generation, scope, timeout: left };
        let formed = world.form(part, wiring);
        drop(self.turn);
        formed
    }
}

/// What a rank asks for, as others hear it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    what: String,
    colour: Option<u32>,
    key: i64,
}

impl Ask {
    pub(super) fn new(call: &'static str, what: String) -> Ask {
        Ask { call, what, colour: None, key: 0 }
    }

    fn encode(&self, wiring: &Wiring) -> Vec<u8> {
        let mut out = vec![VERSION, u8::from(self.colour.is_some())];
        out.extend(self.colour.unwrap_or_default().to_le_bytes());
        out.extend(self.key.to_le_bytes());
        let (backend, device) = wiring.chosen_backend();
        let named = |kind: &str, name: Option<&str>| name.map(|name| format!(", {kind} {name}")).unwrap_or_default();
        let (backend, device) = (named("backend", backend), named("device", device));
        let what = format!("{} of {} over {}{backend}{device}", self.call, self.what, wiring.way());
        put_bytes(&mut out, abridged(&what).as_bytes());
        out
    }

    fn decode(card: &[u8]) -> Option<Asked> {
        let mut reader = Reader::new(card);
        if reader.u8()? != VERSION {
            return None;
        }
        let has_colour = reader.u8()? != 0;
        let colour = Some(reader.u32()?).filter(|_| has_colour);
        let (key, what) = (reader.u64()? as i64, reader.text()?.to_owned());
        reader.is_empty().then_some(Asked { what, colour, key })
    }
}

/// A text that may list every rank, cut to a length that can be read, with a hash that still tells it from others.
fn abridged(text: &str) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((cut, _)) => format!("{}... ({:016x})", &text[..cut], fnv::hash64(text.bytes())),
        None => text.to_owned(),
    }
}

fn list_hash(ranks: &[usize]) -> String {
    format!("{:016x}", fnv::hash64(ranks.iter().flat_map(|&rank| (rank as u64).to_le_bytes())))
}

const VERSION: u8 = 1;
const LONGEST_TEXT: usize = 160;
