//! What a rank says through the store each time it has put a piece onto its desk, or has taken one: which in its row this is, and what it
//! belongs to. It is written over the one before the last, which everybody has read by then.

use phalanx_core::store::Store;

use super::trouble::Trouble;
use crate::api::Status;

/// The number of a piece and what it is a piece of, in words that must be the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Post {
    pub(super) number: u64,
    pub(super) what: String,
}

impl Post {
    pub(super) fn put(&self, store: &Store, row: &str) -> Result<(), Trouble> {
        let bytes = [&self.number.to_le_bytes()[..], self.what.as_bytes()].concat();
        Ok(store.set(&key(row, self.number), bytes)?)
    }

    /// Whether a rank has posted the same; a trouble where it has posted something else under this number.
    pub(super) fn is_put_by(&self, rank: usize, store: &Store, row: &str) -> Result<bool, Trouble> {
        let Some(bytes) = store.find(&key(row, self.number))? else { return Ok(false) };
        let Some((number, what)) = bytes.split_first_chunk() else {
            return Err(Trouble::new(Status::INTERNAL, format!("what rank {rank} has posted is cut short")));
        };
        if u64::from_le_bytes(*number) != self.number {
            return Ok(false);
        }
        if what == self.what.as_bytes() {
            return Ok(true);
        }
        let theirs: String = String::from_utf8_lossy(what).chars().take(MOST_WORDS).collect();
        let words = format!("this rank calls {}, where rank {rank} calls {theirs}", self.what);
        Err(Trouble::new(Status::INVALID_USAGE, words))
    }
}

/// A row has two places, used in turn.
fn key(row: &str, number: u64) -> String {
    format!("{row}/{}", number % 2)
}

/// What is told of another rank's words at most.
const MOST_WORDS: usize = 120;
