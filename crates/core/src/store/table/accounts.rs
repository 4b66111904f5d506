//! Who holds how much of a store, and whether there is room for more. It does not know what is held.

use std::collections::{BTreeMap, BTreeSet};

use super::ClientId;
use crate::store::{Limits, Refusal};

/// Bytes by client, and in all.
///
/// What a client that left still holds counts for the whole store alone.
#[derive(Debug)]
pub(super) struct Accounts {
    limits: Limits,
    held: BTreeMap<ClientId, usize>,
    exempt: BTreeSet<ClientId>,
    total: usize,
}

/// What one client's request would take, and what it would give back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    pub(super) taken: usize,
    pub(super) freed: usize,
    /// The part of what is given back that the client itself holds.
    pub(super) freed_own: usize,
}

impl Accounts {
    pub(super) fn new(limits: Limits) -> Accounts {
        Accounts { limits, held: BTreeMap::new(), exempt: BTreeSet::new(), total: 0 }
    }

    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// What `client` may do: whoever is exempt, whatever the whole store may.
    pub(super) fn limits(&self, client: ClientId) -> Limits {
        if self.exempt.contains(&client) { self.limits.unshared() } else { self.limits }
    }

    pub(super) fn exempt(&mut self, client: ClientId) {
        self.exempt.insert(client);
    }

    /// Refuses a change that leaves `client` or the store above its limit. One that makes it smaller always passes.
    pub(super) fn check(&self, client: ClientId, change: Change) -> Result<(), Refusal> {
        let held = self.held.get(&client).copied().unwrap_or(0);
        let share = self.limits(client).client;
        let after = held.saturating_sub(change.freed_own).saturating_add(change.taken);
        if after > held.max(share) {
            return Err(Refusal::ClientFull { len: after as u64, limit: share as u64 });
        }
        let after = self.total.saturating_sub(change.freed).saturating_add(change.taken);
        if after > self.total.max(self.limits.total) {
            return Err(Refusal::StoreFull { len: after as u64, limit: self.limits.total as u64 });
        }
        Ok(())
    }

    pub(super) fn charge(&mut self, client: ClientId, byte_len: usize) {
        *self.held.entry(client).or_default() += byte_len;
        self.total += byte_len;
    }

    pub(super) fn discharge(&mut self, client: ClientId, byte_len: usize) {
        self.total -= byte_len;
        let Some(held) = self.held.get_mut(&client) else { return };
        // A client that comes back under the number of one that left holds less than its entries say.
        *held = held.saturating_sub(byte_len);
        if *held == 0 {
            self.held.remove(&client);
        }
    }

    /// Closes the account of a client that left.
    pub(super) fn close(&mut self, client: ClientId) {
        self.held.remove(&client);
        self.exempt.remove(&client);
    }
}

/// What an entry, or a key that is waited for, counts.
pub(super) fn entry_byte_len(key_byte_len: usize, value_byte_len: usize) -> usize {
    key_byte_len + value_byte_len + OVERHEAD
}

/// What is counted besides the bytes of keys and values, for an entry or a request that waits.
pub(super) const OVERHEAD: usize = 64;
