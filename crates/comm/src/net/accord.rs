//! Whether the ranks still come together. A rank that cannot connect tells the others at once, lest they wait for it until
//! their time is up. Who connects to whom is decided elsewhere.

use std::sync::Arc;
use std::time::Instant;

use phalanx_core::store::{Store, StoreError};

use crate::moment;

/// One rank's part: each has a key on the store, which says that it has all its connections, or why none will have.
#[derive(Debug)]
pub(super) struct Accord {
    store: Store,
    rank: usize,
    /// The world's numbers of all ranks.
    members: Arc<[usize]>,
}

impl Accord {
    pub(super) fn new(store: Store, rank: usize, members: Arc<[usize]>) -> Accord {
        Accord { store, rank, members }
    }

    /// Waits until this rank has [all its connections](Accord::settle), or it is said why it never will.
    pub(super) fn wait(&self, until: Instant) -> Result<Option<String>, StoreError> {
        match self.store(until).get(&self.key(self.rank)) {
            Ok(word) if word == DONE => Ok(None),
            Ok(why) => Ok(Some(String::from_utf8_lossy(&why).into_owned())),
            // Who is missing is found out by who looks.
            Err(error) if error.is_timeout() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Why another rank said that there will be no group, where one has.
    pub(super) fn reason(&self, until: Instant) -> Option<String> {
        let word = self.store(until).find(&self.key(self.rank)).ok()??;
        (word != DONE).then(|| String::from_utf8_lossy(&word).into_owned())
    }

    /// Nothing more is awaited: all connections are there, or why not. What another rank said before stands.
    pub(super) fn settle(&self, why: Option<String>, until: Instant) {
        let word = why.map_or(DONE.to_vec(), String::into_bytes);
        note(self.store(until).compare_set(&self.key(self.rank), "", word));
    }

    /// This rank cannot connect: nobody needs to wait any more.
    pub(super) fn call_off(&self, why: &str, until: Instant) {
        let why: String = why.chars().take(LONG).collect();
        let why = format!("rank {} could not connect to all others: {why}", self.members[self.rank]);
        let keys: Vec<String> =
            (0..self.members.len()).filter(|&rank| rank != self.rank).map(|rank| self.key(rank)).collect();
        let pairs: Vec<(&str, &[u8])> = keys.iter().map(|key| (&**key, why.as_bytes())).collect();
        note(self.store(until).multi_set(&pairs));
    }

    /// Removes this rank's key, which nobody reads any more.
    pub(super) fn forget(&self, until: Instant) {
        note(self.store(until).delete(&self.key(self.rank)));
    }

    /// The store for what is left of the time.
    fn store(&self, until: Instant) -> Store {
        self.store.with_timeout(moment::left(until))
    }

    fn key(&self, rank: usize) -> String {
        format!("accord/{rank}")
    }
}

/// Where the store fails, the meeting that follows says so.
fn note<R>(asked: Result<R, StoreError>) {
    if let Err(error) = asked {
        log::debug!("ranks over TCP: {error}");
    }
}

const DONE: &[u8] = b"+";
/// How much is told of a reason, in letters.
const LONG: usize = 1 << 10;
