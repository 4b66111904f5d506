//! One process's copy of what a file says, and those of its threads that watch for changes. It does no I/O.
//!
//! What waits does not stand in the table: there it would count for quotas and take values on one process alone, and the
//! copies would no longer be the same.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_core::store::{Asked, ClientId, Key, Limits, Refusal, Reply, Request, Table};

/// The contents as far as the log was read.
#[derive(Debug)]
pub(super) struct Replica {
    table: Table,
    watches: BTreeMap<Watch, Awaited>,
    last: u64,
}

/// A thread that watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Watch(u64);

/// What is watched for.
#[derive(Debug)]
enum Awaited {
    /// The keys that were not there since.
    Keys(BTreeSet<Key>),
    /// That an arrival here completes a barrier.
    Barrier(Key),
    Over,
}

impl Replica {
    pub(super) fn new(limits: Limits) -> Replica {
        Replica { table: Table::new(limits), watches: BTreeMap::new(), last: 0 }
    }

    /// Begins anew with nothing; who watches goes on.
    pub(super) fn restart(&mut self, limits: Limits) {
        self.table = Table::new(limits);
    }

    /// Answers what changes nothing.
    pub(super) fn look(&mut self, request: Request) -> Result<Reply, Refusal> {
        debug_assert!(!request.waits());
        self.ask(READER, request)
    }

    /// Carries out a change. An arrival at a barrier is answered with the number of arrivals.
    pub(super) fn apply(&mut self, client: ClientId, request: Request) -> Result<Reply, Refusal> {
        self.ask(client, arrival(request))
    }

    /// Shows those who watch a change that was answered with `reply`.
    pub(super) fn show(&mut self, request: &Request, reply: &Reply) {
        if matches!(request, Request::Delete { .. } | Request::Pop { .. }) {
            return;
        }
        let complete =
            matches!((request, reply), (Request::Barrier { size, .. }, Reply::Number(count)) if count >= size);
        for awaited in self.watches.values_mut() {
            awaited.see(request, complete);
        }
    }

    /// Watches for those of `keys` that are not there; none where all are.
    pub(super) fn watch_keys(&mut self, keys: &[Key]) -> Result<Option<Watch>, Refusal> {
        if self.look(Request::Check { keys: keys.to_vec() })? == Reply::Flag(true) {
            return Ok(None);
        }
        let mut absent = BTreeSet::new();
        for key in keys {
            if self.look(Request::Check { keys: vec![key.clone()] })? != Reply::Flag(true) {
                absent.insert(key.clone());
            }
        }
        Ok(Some(self.watch(Awaited::Keys(absent))))
    }

    pub(super) fn watch_barrier(&mut self, key: Key) -> Watch {
        self.watch(Awaited::Barrier(key))
    }

    /// Whether what was watched for has come; the watch ends then.
    pub(super) fn is_over(&mut self, watch: Watch) -> bool {
        let over = matches!(self.watches.get(&watch), Some(Awaited::Over));
        if over {
            self.watches.remove(&watch);
        }
        over
    }

    /// Ends a watch and tells what it still missed.
    pub(super) fn unwatch(&mut self, watch: Watch) -> Vec<Key> {
        match self.watches.remove(&watch) {
            Some(Awaited::Keys(keys)) => keys.into_iter().collect(),
            Some(Awaited::Barrier(key)) => vec![key],
            Some(Awaited::Over) | None => Vec::new(),
        }
    }

    fn ask(&mut self, client: ClientId, request: Request) -> Result<Reply, Refusal> {
        match self.table.ask(client, request) {
            Asked::Answered(answer) => answer,
            Asked::Waiting(ticket) => {
                self.table.cancel(ticket);
                Err(Refusal::Unsupported { store: "a copy of a file's store".into() })
            }
        }
    }

    fn watch(&mut self, awaited: Awaited) -> Watch {
        self.last += 1;
        self.watches.insert(Watch(self.last), awaited);
        Watch(self.last)
    }
}

impl Awaited {
    /// Values came under the keys of `request`, or completed a barrier there.
    fn see(&mut self, request: &Request, complete: bool) {
        let over = match self {
            Awaited::Keys(absent) => {
                for key in request.keys() {
                    absent.remove(key);
                }
                absent.is_empty()
            }
            Awaited::Barrier(key) => complete && request.keys().any(|came| came == key),
            Awaited::Over => false,
        };
        if over {
            *self = Awaited::Over;
        }
    }
}

/// An arrival at a barrier as the addition that it is. One whose size makes no sense stays what it is, to be refused.
fn arrival(request: Request) -> Request {
    match request {
        Request::Barrier { key, size: 1.. } => Request::Add { key, delta: 1 },
        request => request,
    }
}

/// Who only reads pays for nothing.
const READER: ClientId = ClientId(0);
