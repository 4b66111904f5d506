//! What a store holds: values and queues, each entry with the client that pays for it. It does not know who waits.

use std::collections::{BTreeMap, VecDeque};

use super::ClientId;
use super::accounts::{Accounts, Change, entry_byte_len};
use crate::store::{Key, Limits, Refusal, Value};

/// Values and queues, two spaces of names. Ordered, so that whatever is listed comes in the same order every time.
#[derive(Debug)]
pub(super) struct Contents {
    values: BTreeMap<Key, Entry>,
    queues: BTreeMap<Key, VecDeque<Entry>>,
    value_limit: usize,
    pub(super) accounts: Accounts,
}

/// A value, and the client that last wrote it.
#[derive(Debug)]
struct Entry {
    value: Value,
    owner: ClientId,
}

/// What was there under a name that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Removed {
    pub(super) value: bool,
    pub(super) queue: bool,
}

impl Contents {
    pub(super) fn new(limits: Limits) -> Contents {
        let accounts = Accounts::new(limits);
        Contents { values: BTreeMap::new(), queues: BTreeMap::new(), value_limit: limits.value, accounts }
    }

    /// How many values there are.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.values.keys()
    }

    pub(super) fn value(&self, key: &Key) -> Option<&Value> {
        self.values.get(key).map(|entry| &entry.value)
    }

    /// Whether there is a value, or a queue that is not empty.
    pub(super) fn is_there(&self, key: &Key) -> bool {
        self.values.contains_key(key) || self.queues.contains_key(key)
    }

    pub(super) fn queue_len(&self, key: &Key) -> usize {
        self.queues.get(key).map_or(0, VecDeque::len)
    }

    pub(super) fn head(&self, key: &Key) -> Option<&Value> {
        self.queues.get(key)?.front().map(|entry| &entry.value)
    }

    /// Stores all of `pairs`, whose keys differ, or none. Returns the keys under which there was no value.
    pub(super) fn put(&mut self, client: ClientId, pairs: Vec<(Key, Value)>) -> Result<Vec<Key>, Refusal> {
        let mut change = Change::default();
        for (key, value) in &pairs {
            change.replace(client, self.cost(key), entry_byte_len(key.as_bytes().len(), value.len()));
        }
        self.accounts.check(client, change)?;
        let mut fresh = Vec::new();
        for (key, value) in pairs {
            if self.store(client, key.clone(), value) {
                fresh.push(key);
            }
        }
        Ok(fresh)
    }

    /// Adds `bytes` at the end of a value; whether there was none.
    pub(super) fn append(&mut self, client: ClientId, key: Key, bytes: Value) -> Result<bool, Refusal> {
        let Some((owner, before)) = self.cost(&key) else {
            return Ok(!self.put(client, vec![(key, bytes)])?.is_empty());
        };
        let Some(entry) = self.values.get_mut(&key) else { return Ok(false) };
        let (len, limit) = (entry.value.len() + bytes.len(), self.value_limit);
        if len > limit {
            return Err(Refusal::ValueTooLong { len: len as u64, limit: limit as u64, key });
        }
        let mut change = Change::default();
        let after = before + bytes.len();
        change.replace(client, Some((owner, before)), after);
        self.accounts.check(client, change)?;
        self.accounts.discharge(owner, before);
        self.accounts.charge(client, after);
        entry.value.append(&bytes);
        entry.owner = client;
        Ok(false)
    }

    pub(super) fn remove(&mut self, key: &Key) -> Removed {
        let value = self.values.remove(key);
        let queue = self.queues.remove(key);
        let removed = Removed { value: value.is_some(), queue: queue.is_some() };
        for entry in value.into_iter().chain(queue.into_iter().flatten()) {
            self.free(key, &entry);
        }
        removed
    }

    pub(super) fn push(&mut self, client: ClientId, key: Key, value: Value) -> Result<(), Refusal> {
        let taken = entry_byte_len(key.as_bytes().len(), value.len());
        self.accounts.check(client, Change { taken, ..Change::default() })?;
        self.accounts.charge(client, taken);
        self.queues.entry(key).or_default().push_back(Entry { value, owner: client });
        Ok(())
    }

    pub(super) fn pop(&mut self, key: &Key) -> Option<Value> {
        let queue = self.queues.get_mut(key)?;
        let entry = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(key);
        }
        self.free(key, &entry);
        Some(entry.value)
    }

    /// Puts back a value that was taken from the head and reached nobody. It was let in once and is not refused now.
    pub(super) fn unpop(&mut self, client: ClientId, key: Key, value: Value) {
        self.accounts.charge(client, entry_byte_len(key.as_bytes().len(), value.len()));
        self.queues.entry(key).or_default().push_front(Entry { value, owner: client });
    }

    /// Whether there was no value before.
    fn store(&mut self, client: ClientId, key: Key, value: Value) -> bool {
        let (before, after) = (self.cost(&key), entry_byte_len(key.as_bytes().len(), value.len()));
        if let Some((owner, byte_len)) = before {
            self.accounts.discharge(owner, byte_len);
        }
        self.accounts.charge(client, after);
        self.values.insert(key, Entry { value, owner: client });
        before.is_none()
    }

    /// What the value under `key` counts, and for whom.
    fn cost(&self, key: &Key) -> Option<(ClientId, usize)> {
        let entry = self.values.get(key)?;
        Some((entry.owner, entry_byte_len(key.as_bytes().len(), entry.value.len())))
    }

    fn free(&mut self, key: &Key, entry: &Entry) {
        self.accounts.discharge(entry.owner, entry_byte_len(key.as_bytes().len(), entry.value.len()));
    }
}

impl Change {
    /// Counts that `after` bytes come in the place of `before`.
    fn replace(&mut self, client: ClientId, before: Option<(ClientId, usize)>, after: usize) {
        self.taken += after;
        if let Some((owner, byte_len)) = before {
            self.freed += byte_len;
            self.freed_own += if owner == client { byte_len } else { 0 };
        }
    }
}
