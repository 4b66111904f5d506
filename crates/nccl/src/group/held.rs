//! What holds a group's operations up that another group of this rank has begun before: its own error says so, and the other ranks are told, so that
//! none of the group is blamed for it.
//!
//! The time of an operation goes on while it is held up: it is the caller's, who is to have an answer when it is over, and the other ranks' time
//! goes on too. It only says whose fault that is.

use std::sync::Arc;

use phalanx_core::{Chain, Ranks};

use super::flight::{Flight, Stage};
use super::hall::Hall;
use super::order::{Begun, Company};
use super::standing::next;
use crate::api::{Cuda, Nccl, Process};

/// What holds up a group's collectives on a rank from a number on, and what comes behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) from: u32,
    /// The operation of another group that the same thread has begun before.
    pub(super) by: String,
    /// For whom that waits, by their numbers in the world, as far as is known.
    pub(super) ranks: Vec<u32>,
}

impl Held {
    fn new(from: u32, begun: &Begun) -> Held {
        let group = begun.group.upgrade();
        let title = group.as_ref().map_or_else(|| "another group".to_owned(), |group| group.title());
        let ranks = group.map(|group| group.awaited(begun.sequence)).unwrap_or_default();
        let ranks = ranks.into_iter().take(TOLD).filter_map(|rank| u32::try_from(rank).ok()).collect();
        Held { from, by: format!("{} (operation {}) of {title}", begun.op, begun.sequence), ranks }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.from.to_le_bytes().to_vec();
        // Both are bounded where they are made.
        bytes.extend((self.by.len() as u16).to_le_bytes());
        bytes.extend(self.by.as_bytes());
        bytes.push(self.ranks.len() as u8);
        self.ranks.iter().for_each(|rank| bytes.extend(rank.to_le_bytes()));
        bytes
    }

    pub(super) fn decode(rest: &mut &[u8]) -> Option<Held> {
        let (from, len) = (u32::from_le_bytes(next(rest)?), u16::from_le_bytes(next(rest)?));
        let (by, tail) = rest.split_at_checked(usize::from(len))?;
        *rest = tail;
        let by = str::from_utf8(by).ok()?.to_owned();
        let [count] = next(rest)?;
        let ranks = (0..count).map(|_| Some(u32::from_le_bytes(next(rest)?))).collect::<Option<_>>()?;
        Some(Held { from, by, ranks })
    }

    /// Whether it holds up a rank's part of this collective. Messages are in no order with collectives that all ranks have in common: those of a
    /// batch may be before it on one rank and behind it on another.
    pub(super) fn covers(&self, flight: &Flight) -> bool {
        flight.peers.is_empty() && self.from <= flight.sequence
    }

    /// How an operation comes to wait for whom it does: it is held up itself, or its part on another rank of the world is.
    pub(super) fn chain(&self, on: Option<usize>, own: usize) -> Chain {
        let by = &self.by;
        if self.ranks.is_empty() {
            // "its turn in the group's queue" comes after this.
            return Chain::Through(match on {
                None => format!("{by}, which holds up"),
                Some(rank) => format!("rank {rank}, which {by} keeps from"),
            });
        }
        let path = match on {
            None => format!("{by}, which holds up its turn and waits for"),
            Some(rank) => format!("rank {rank}, held up by {by}, which waits for"),
        };
        let ranks: Vec<usize> = self.ranks.iter().map(|&rank| rank as usize).collect();
        if ranks.contains(&own) { Chain::Circle(format!("{path} rank {own}")) } else { Chain::Beyond { path, ranks } }
    }
}

impl<N: Nccl, C: Cuda, P: Process> Hall<N, C, P> {
    /// What holds up this rank's next collective that is not on its stream, and with it all that comes behind.
    pub(super) fn held(&self) -> Option<Held> {
        let waits = |flight: &Arc<Flight>| flight.stage() == Stage::Queued && flight.place.get().is_some();
        let next = self.under_way().into_iter().filter(waits).min_by_key(|flight| flight.sequence)?;
        Some(Held::new(next.sequence, &next.place.get()?.held_by()?))
    }

    /// What holds an operation up, or did for most of its time until it failed: what is left then says nothing of the other ranks, which may have
    /// been held up by the same.
    pub(super) fn holder(&self, flight: &Flight) -> Option<Held> {
        let held = if flight.stage() == Stage::Queued { self.held() } else { None };
        let in_queue = |held: &Held| self.lanes().iter().any(|lane| lane.has_behind(held.from, flight));
        if let Some(held) = held.filter(|held| held.covers(flight) || in_queue(held)) {
            return Some(held);
        }
        let half = flight.deadline.saturating_sub(flight.after / 2);
        let failure = flight.place.get()?.failure().filter(|failure| failure.at >= half)?;
        Some(Held::new(flight.sequence, &failure.begun))
    }
}

impl<N: Nccl, C: Cuda, P: Process> Company for Hall<N, C, P> {
    fn title(&self) -> String {
        let short = |text: String| text.chars().take(TITLE).collect::<String>();
        match &self.options.name {
            Some(name) => format!("group {:?}", short(name.to_string())),
            None => {
                let members: Vec<usize> = (0..self.layout.size()).map(|rank| self.world_rank(rank)).collect();
                short(format!("the group of {}", Ranks(&members).named()))
            }
        }
    }

    fn awaited(&self, sequence: u32) -> Vec<usize> {
        let error = match self.fate() {
            Some(fate) => Some(fate.error),
            None => {
                let flights = self.under_way();
                let flight = flights.iter().find(|flight| flight.peers.is_empty() && flight.sequence == sequence);
                flight.and_then(|flight| self.missed(flight))
            }
        };
        error.map(|error| self.in_world(error).culprits()).unwrap_or_default()
    }
}

/// How many of whom an operation waits for a rank tells at most.
const TOLD: usize = 64;
/// How many letters of a group's name.
const TITLE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn held(ranks: &[u32]) -> Held {
        Held { from: 3, by: "barrier (operation 7) of group \"rows\"".to_owned(), ranks: ranks.to_vec() }
    }

    #[test]
    fn nobody_is_made_out_as_lost_but_whom_the_other_group_waits_for() {
        let beyond = |path: &str| Chain::Beyond { path: path.to_owned(), ranks: vec![6, 9] };
        let own = beyond("barrier (operation 7) of group \"rows\", which holds up its turn and waits for");
        assert_eq!(held(&[6, 9]).chain(None, 0), own);
        let others = beyond("rank 4, held up by barrier (operation 7) of group \"rows\", which waits for");
        assert_eq!(held(&[6, 9]).chain(Some(4), 0), others);
        let through = |words: &str| Chain::Through(words.to_owned());
        assert_eq!(held(&[]).chain(None, 0), through("barrier (operation 7) of group \"rows\", which holds up"));
        let keeps = through("rank 4, which barrier (operation 7) of group \"rows\" keeps from");
        assert_eq!(held(&[]).chain(Some(4), 0), keeps);
    }

    #[test]
    fn who_waits_for_itself_in_the_end_is_in_a_deadlock() {
        let circle = "rank 4, held up by barrier (operation 7) of group \"rows\", which waits for rank 0";
        assert_eq!(held(&[9, 0]).chain(Some(4), 0), Chain::Circle(circle.to_owned()));
    }
}
