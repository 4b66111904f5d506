//! Whether the ranks still come together. A rank that cannot connect tells the others at once, lest they wait for it until
//! their time is up. Who connects to whom is decided elsewhere.

use std::sync::Arc;
use std::time::Instant;

use phalanx_core::store::{Store, StoreError};
use phalanx_core::{Error, Result};

use crate::moment;

/// One rank's part: each has a key on the store, which says that it has all its connections, or why none will have.
#[derive(Debug)]
pub(super) struct Accord {
    store: Store,
    rank: usize,
    /// The world's numbers of all ranks.
    members: Arc<[usize]>,
}

/// Why there will be no group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) why: String,
    /// The world's numbers of the ranks that are lost, where that is why.
    pub(super) lost: Vec<usize>,
}

impl Reason {
    /// As the error of whoever hears of it.
    pub(super) fn error(self, what: &str) -> Error {
        Error::absent(what, self.why, self.lost)
    }

    fn encode(&self) -> Vec<u8> {
        let lost: Vec<String> = self.lost.iter().map(usize::to_string).collect();
        format!("{};{}", lost.join(","), self.why).into_bytes()
    }

    /// What another rank has said, who may say anything.
    fn decode(word: &[u8]) -> Reason {
        let word = String::from_utf8_lossy(word);
        let (lost, why) = word.split_once(';').unwrap_or(("", &word));
        Reason { why: why.to_owned(), lost: lost.split(',').filter_map(|rank| rank.parse().ok()).collect() }
    }
}

impl Accord {
    pub(super) fn new(store: Store, rank: usize, members: Arc<[usize]>) -> Accord {
        Accord { store, rank, members }
    }

    /// Waits until this rank has [all its connections](Accord::settle), or it is said why it never will.
    pub(super) fn wait(&self, until: Instant) -> Result<Option<Reason>, StoreError> {
        match self.store(until).get(&self.key(self.rank)) {
            Ok(word) if word == DONE => Ok(None),
            Ok(word) => Ok(Some(Reason::decode(&word))),
            // Who is missing is found out by who looks.
            Err(error) if error.is_timeout() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Why another rank said that there will be no group, where one has.
    pub(super) fn reason(&self, until: Instant) -> Option<Reason> {
        let word = self.store(until).find(&self.key(self.rank)).ok()??;
        (word != DONE).then(|| Reason::decode(&word))
    }

    /// Nothing more is awaited: all connections are there, or why not. What another rank said before stands.
    pub(super) fn settle(&self, reason: Option<Reason>, until: Instant) {
        let word = reason.map_or(DONE.to_vec(), |reason| reason.encode());
        note(self.store(until).compare_set(&self.key(self.rank), "", word));
    }

    /// This rank cannot connect, because of this: nobody needs to wait any more.
    pub(super) fn call_off(&self, error: &Error, until: Instant) {
        let why: String = error.to_string().chars().take(LONG).collect();
        let why = format!("rank {} could not connect to all others: {why}", self.members[self.rank]);
        let word = Reason { why, lost: error.culprits() }.encode();
        let keys: Vec<String> =
            (0..self.members.len()).filter(|&rank| rank != self.rank).map(|rank| self.key(rank)).collect();
        let pairs: Vec<(&str, &[u8])> = keys.iter().map(|key| (&**key, &*word)).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_heard_as_it_was_said() {
        for lost in [vec![], vec![3], vec![3, 70_000]] {
            let said = Reason { why: "rank 3 is gone; so is more, 4".to_owned(), lost };
            assert_eq!(Reason::decode(&said.encode()), said);
        }
        let odd = Reason { why: "nothing of ours".to_owned(), lost: vec![] };
        assert_eq!(Reason::decode(b"nothing of ours"), odd);
        assert_eq!(Reason::decode(b"x,-1;nothing of ours"), odd);
    }
}
