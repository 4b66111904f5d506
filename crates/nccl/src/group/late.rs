//! For whom an operation waits that is late, as far as the ranks have told each other.

use phalanx_core::{Chain, Error, Last, OpKind, Stuck, Waiting};

use super::flight::Flight;
use super::hall::{Hall, lock};
use super::standing::Standing;
use crate::api::{Cuda, Nccl, Process};

impl<N: Nccl, C: Cuda, P: Process> Hall<N, C, P> {
    /// The error of an operation that has taken too long: what of another group holds it up; or who has not come to it, or is held up there; or
    /// else all whom it waits for.
    pub(super) fn late(&self, flight: &Flight) -> Error {
        if let Some(held) = self.holder(flight) {
            return flight.timed_out(Vec::new(), held.chain(None, self.own_world_rank()));
        }
        self.missed(flight).unwrap_or_else(|| {
            flight.timed_out(self.awaited_by(flight).into_iter().map(Stuck::unknown).collect(), Chain::Direct)
        })
    }

    /// The same of the other ranks alone, where any of them has said that it has not come, or is held up.
    pub(super) fn missed(&self, flight: &Flight) -> Option<Error> {
        let (standings, awaited) = (lock(&self.standings).clone(), self.awaited_by(flight));
        let held = |rank: usize| standings[rank].as_ref()?.held.as_ref().filter(|held| held.covers(flight));
        let others = awaited.iter().filter(|rank| held(**rank).is_none());
        let stuck: Vec<Stuck> =
            others.filter_map(|&rank| self.stuck_on(flight, rank, standings[rank].as_ref())).collect();
        let first = awaited.iter().find_map(|&rank| Some((self.world_rank(rank), held(rank)?)));
        match (first, stuck.is_empty()) {
            (None, true) => None,
            (None, false) => Some(flight.timed_out(stuck, Chain::Direct)),
            (Some((rank, held)), true) => Some(flight.timed_out(stuck, held.chain(Some(rank), self.own_world_rank()))),
            (Some((rank, held)), false) => {
                let words = format!("rank {rank}, held up by {}, and", held.by);
                Some(flight.timed_out(stuck, Chain::Through(words)))
            }
        }
    }

    fn own_world_rank(&self) -> usize {
        self.world_rank(self.layout.rank())
    }

    /// The ranks whose part an operation waits for.
    fn awaited_by(&self, flight: &Flight) -> Vec<usize> {
        if flight.peers.is_empty() {
            return (0..self.layout.size()).filter(|&rank| rank != self.layout.rank()).collect();
        }
        flight.peers.clone()
    }

    /// What an operation waits for of a rank that has not called its part, as far as that one tells. The one peer of messages is always named.
    fn stuck_on(&self, flight: &Flight, peer: usize, standing: Option<&Standing>) -> Option<Stuck> {
        let on = |is_sent| if is_sent { Waiting::Taking } else { Waiting::Giving };
        if flight.peers.is_empty() {
            let is_missing = standing.is_none_or(|standing| standing.called <= flight.sequence);
            return is_missing.then(|| Stuck { peer, on: Waiting::Coming { last: self.last(standing) } });
        }
        if flight.peers.len() == 1 {
            return Some(Stuck { peer, on: on(flight.op == OpKind::Send) });
        }
        let own = self.layout.rank();
        let mut messages = flight.batch.get()?.iter().filter(|message| usize::try_from(message.peer) == Ok(peer));
        let message = messages.find(|message| standing.is_none_or(|standing| !standing.has_met(own, message)))?;
        Some(Stuck { peer, on: on(message.is_sent) })
    }

    /// What a rank called last, and where this rank called the same.
    fn last(&self, standing: Option<&Standing>) -> Option<Last> {
        let print = standing?.prints.last()?;
        let history = lock(&self.history);
        let ours = history.prints.iter().find(|(ours, _)| ours.sequence == print.sequence);
        let site = ours.map(|(_, site)| site.clone()).unwrap_or_default();
        Some(Last { op: print.op, sequence: print.sequence, site })
    }
}
