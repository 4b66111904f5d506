//! Who waits for what, first come first served, and the answers that nobody has fetched yet. It holds no values of the store.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::accounts::{OVERHEAD, entry_byte_len};
use super::{ClientId, Ticket};
use crate::store::{Key, Refusal, Reply};

/// Requests that wait, found by ticket, by client and by what they wait for.
///
/// Tickets grow, so the order of tickets at a key is the order in which they came. Every step costs the logarithm of how many
/// wait, and a key that comes or goes costs that for each who waits there.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    waiters: BTreeMap<Ticket, Waiter>,
    spots: BTreeSet<(Key, Kind, Ticket)>,
    clients: BTreeSet<(ClientId, Ticket)>,
    told: BTreeMap<Ticket, Told>,
    order: VecDeque<Ticket>,
    last: u64,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// That each key was there once: a waiter stands only at keys that were not.
    Seen,
    /// That all keys have values at one moment: a waiter stands at all of them.
    Values,
    /// The head of a queue.
    Pop,
    /// More arrivals.
    Barrier,
}

/// One request that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) client: ClientId,
    pub(super) kind: Kind,
    pub(super) keys: Vec<Key>,
    /// How many different keys are still missing.
    missing: usize,
}

/// An answer that nobody has fetched yet.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) waiter: Waiter,
    pub(super) answer: Result<Reply, Refusal>,
}

impl Waiting {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Lets a request wait for those of `keys` that are not there.
    pub(super) fn enter(
        &mut self,
        client: ClientId,
        kind: Kind,
        keys: Vec<Key>,
        is_there: impl Fn(&Key) -> bool,
    ) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        let mut missing = 0;
        for key in &keys {
            let there = is_there(key);
            if !there || kind == Kind::Values {
                let first = self.spots.insert((key.clone(), kind, ticket));
                missing += usize::from(first && !there);
            }
        }
        self.clients.insert((client, ticket));
        self.waiters.insert(ticket, Waiter { client, kind, keys, missing });
        ticket
    }

    /// Takes out a request that waits.
    pub(super) fn end(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = self.waiters.remove(&ticket)?;
        self.clients.remove(&(waiter.client, ticket));
        for key in &waiter.keys {
            self.spots.remove(&(key.clone(), waiter.kind, ticket));
        }
        Some(waiter)
    }

    /// Keeps the answer to a request that waited until it is fetched.
    pub(super) fn tell(&mut self, ticket: Ticket, waiter: Waiter, answer: Result<Reply, Refusal>) {
        self.clients.insert((waiter.client, ticket));
        self.told.insert(ticket, Told { waiter, answer });
        self.order.push_back(ticket);
    }

    /// The oldest answer that nobody has fetched.
    pub(super) fn fetch(&mut self) -> Option<(Ticket, Told)> {
        let ticket = loop {
            let ticket = self.order.pop_front()?;
            if self.told.contains_key(&ticket) {
                break ticket;
            }
        };
        Some((ticket, self.untell(ticket)?))
    }

    /// Whether there are answers that nobody has fetched.
    pub(super) fn has_told(&self) -> bool {
        !self.told.is_empty()
    }

    /// Takes back an answer that nobody has fetched.
    pub(super) fn untell(&mut self, ticket: Ticket) -> Option<Told> {
        let told = self.told.remove(&ticket)?;
        self.clients.remove(&(told.waiter.client, ticket));
        Some(told)
    }

    /// The client's tickets, whether they wait or were answered.
    pub(super) fn of_client(&self, client: ClientId) -> Vec<Ticket> {
        let tickets = self.clients.range((client, Ticket(0))..=(client, Ticket(u64::MAX)));
        tickets.map(|&(_, ticket)| ticket).collect()
    }

    /// Who has waited longest for this.
    pub(super) fn first(&self, key: &Key, kind: Kind) -> Option<Ticket> {
        self.at(key, kind).next()
    }

    pub(super) fn at(&self, key: &Key, kind: Kind) -> impl Iterator<Item = Ticket> {
        let (from, to) = ((key.clone(), kind, Ticket(0)), (key.clone(), kind, Ticket(u64::MAX)));
        self.spots.range(from..=to).map(|&(_, _, ticket)| ticket)
    }

    /// A value came where there was none. Returns who misses nothing any more, in no order.
    pub(super) fn value_came(&mut self, key: &Key) -> Vec<Ticket> {
        let seen: Vec<Ticket> = self.at(key, Kind::Seen).collect();
        for &ticket in &seen {
            self.spots.remove(&(key.clone(), Kind::Seen, ticket));
        }
        let mut tickets: Vec<Ticket> = self.at(key, Kind::Values).chain(seen).collect();
        tickets.retain(|&ticket| self.misses_one_less(ticket));
        tickets
    }

    /// The value under `key` went.
    pub(super) fn value_went(&mut self, key: &Key) {
        let tickets: Vec<Ticket> = self.at(key, Kind::Values).collect();
        for ticket in tickets {
            if let Some(waiter) = self.waiters.get_mut(&ticket) {
                waiter.missing += 1;
            }
        }
    }

    /// A value came into a queue: whoever has waited longest for the key has seen it. Returns them if they miss nothing more.
    pub(super) fn queue_came(&mut self, key: &Key) -> Option<Ticket> {
        let ticket = self.first(key, Kind::Seen)?;
        self.spots.remove(&(key.clone(), Kind::Seen, ticket));
        self.misses_one_less(ticket).then_some(ticket)
    }

    /// The keys that the request still waits for.
    pub(super) fn missing(&self, ticket: Ticket, has_value: impl Fn(&Key) -> bool) -> Vec<Key> {
        let Some(waiter) = self.waiters.get(&ticket) else { return Vec::new() };
        let missing = |key: &&Key| match waiter.kind {
            Kind::Seen => self.spots.contains(&((*key).clone(), Kind::Seen, ticket)),
            Kind::Values => !has_value(key),
            Kind::Pop | Kind::Barrier => true,
        };
        waiter.keys.iter().filter(missing).cloned().collect()
    }

    /// Whether nothing is missing any more.
    fn misses_one_less(&mut self, ticket: Ticket) -> bool {
        let Some(waiter) = self.waiters.get_mut(&ticket) else { return false };
        waiter.missing -= 1;
        waiter.missing == 0
    }
}

/// What a request that waits for `keys` counts.
pub(super) fn wait_byte_len(keys: &[Key]) -> usize {
    keys.iter().map(|key| entry_byte_len(key.as_bytes().len(), 0)).sum::<usize>() + OVERHEAD
}
