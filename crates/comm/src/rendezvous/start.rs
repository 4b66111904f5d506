//! Which start of a job this is, where no launcher says it alike on all hosts: the ranks agree on it by the store that they share, on which
//! those of earlier starts have left what they told.
//!
//! Rank 0 opens a round, and answers with the words of all whom it has heard in it. Each of the others says a word of its own there, and
//! believes no answer without it: that is one to ranks of before, whose rank 0 ended behind it.

use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::store::{Store, StoreError};
use phalanx_core::{Error, Layout, Result};

use super::Ranks;

/// A number that all ranks of one start of the job get, and those of no earlier start had: how many of them have begun to meet on this store
/// before.
///
/// # Errors
///
/// [`Setup`](phalanx_core::ErrorKind::Setup) with the ranks that did not come, and for a rank that is not below the size.
pub fn agree_on_start(store: &Store, rank: usize, size: usize, timeout: Duration) -> Result<u32> {
    Layout::one_host(rank, size)?;
    let start = Start { store: store.clone(), rank, size, timeout, until: Instant::now() + timeout };
    number(&if rank == 0 { start.open()? } else { start.follow()? })
}

/// The number of the start whose ranks have begun to meet last, for whoever joins them later.
///
/// # Errors
///
/// [`Setup`](phalanx_core::ErrorKind::Setup) where no ranks have, within the store's timeout.
pub fn latest_start(store: &Store) -> Result<u32> {
    number(&text(store.get(ROUND)?))
}

fn number(round: &str) -> Result<u32> {
    let number = round.parse::<u32>().ok().and_then(|round| round.checked_sub(1));
    number.ok_or_else(|| Error::setup(WHAT, format!("the round of rank 0 is {round:?}, must be a number above 0")))
}

struct Start {
    store: Store,
    rank: usize,
    size: usize,
    timeout: Duration,
    until: Instant,
}

impl Start {
    fn open(&self) -> Result<String> {
        let former = self.store.find(ROUND)?.map(text);
        let round = self.store.add(COUNT, 1)?.to_string();
        self.store.set(ROUND, &round)?;
        if let Some(former) = &former {
            // Who came before this rank waits there.
            self.store.set(&answer(former), "")?;
        }
        let seats: Vec<String> = (1..self.size).map(|rank| seat(&round, rank)).collect();
        let seats: Vec<&str> = seats.iter().map(String::as_str).collect();
        self.bounded().wait(&seats).map_err(|error| self.late(&round, error))?;
        let words: Vec<String> = self.store.multi_get(&seats)?.into_iter().map(text).collect();
        self.store.set(&answer(&round), words.join(" "))?;
        if let Some(former) = &former {
            self.store.delete(&answer(former))?;
        }
        Ok(round)
    }

    fn follow(&self) -> Result<String> {
        let word = fastrand::u128(..).to_string();
        let mut round = self.bounded().get(ROUND).map(text).map_err(|error| self.unopened(error))?;
        loop {
            self.store.set(&seat(&round, self.rank), &word)?;
            let heard = self.bounded().get(&answer(&round)).map(text).map_err(|error| self.late(&round, error))?;
            // Rank 0 looks there no more, whosever rank it is.
            self.store.delete(&seat(&round, self.rank))?;
            if heard.split(' ').any(|heard| heard == word) {
                return Ok(round);
            }
            round = self.another(&round)?;
        }
    }

    /// The round that follows one whose answer was to others. Stores tell of keys that come, not of those that change.
    fn another(&self, round: &str) -> Result<String> {
        let mut pause = Duration::from_millis(1);
        loop {
            let current = self.store.get(ROUND).map(text)?;
            if current != round {
                return Ok(current);
            }
            if Instant::now() >= self.until {
                return Err(self.unopened("its last round was another start's"));
            }
            thread::sleep(pause);
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// The store, which is asked for what is left of the time.
    fn bounded(&self) -> Store {
        self.store.with_timeout(self.until.saturating_duration_since(Instant::now()))
    }

    /// Names those who have said nothing in a round; rank 0, where all have.
    fn late(&self, round: &str, error: StoreError) -> Error {
        if !matches!(error, StoreError::Timeout { .. }) {
            return error.into();
        }
        let is_missing = |rank: &usize| !self.store.check(&[&seat(round, *rank)]).unwrap_or(true);
        let missing: Vec<usize> = (1..self.size).filter(is_missing).collect();
        match missing.is_empty() {
            true => self.unopened(error),
            false => self.absent(missing, error),
        }
    }

    fn unopened(&self, why: impl std::fmt::Display) -> Error {
        self.absent(vec![0], why)
    }

    fn absent(&self, missing: Vec<usize>, why: impl std::fmt::Display) -> Error {
        let (who, size, within) = (Ranks(&missing).named(), self.size, self.timeout);
        Error::absent(WHAT, format!("{who} of {size} did not come within {within:?}: {why}"), missing)
    }
}

fn seat(round: &str, rank: usize) -> String {
    format!("{round}/{rank}")
}

fn answer(round: &str) -> String {
    format!("{round}/heard")
}

fn text(value: Vec<u8>) -> String {
    String::from_utf8_lossy(&value).into_owned()
}

const WHAT: &str = "joining the world";
const COUNT: &str = "count";
const ROUND: &str = "round";
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::LocalStore;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(300);

    fn all(store: &Store, size: usize) -> Vec<u32> {
        thread::scope(|scope| {
            let agree = |rank| scope.spawn(move || agree_on_start(store, rank, size, LONG).expect("a start"));
            let ranks: Vec<_> = (0..size).rev().map(agree).collect();
            ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
        })
    }

    #[test]
    fn each_start_has_a_number_of_its_own_and_leaves_little() {
        let store = Store::new(LocalStore::default());
        for start in 0..4 {
            assert_eq!(all(&store, 3), [start; 3]);
            assert_eq!(latest_start(&store), Ok(start));
            // The count, the round, and its answer.
            assert_eq!(store.num_keys().expect("a store"), 3);
        }
        assert_eq!(all(&store, 1), [4]);
    }

    #[test]
    fn whoever_comes_before_rank_0_waits_for_its_round_and_not_for_that_of_a_killed_one() {
        let store = Store::new(LocalStore::default());
        all(&store, 2);
        thread::scope(|scope| {
            let early = scope.spawn(|| agree_on_start(&store, 1, 2, LONG));
            // It says its word in the round of before, whose answer stands, until it finds another.
            while !store.check(&[&seat("1", 1)]).expect("a store") && !early.is_finished() {
                thread::yield_now();
            }
            assert_eq!(agree_on_start(&store, 0, 2, LONG), Ok(1));
            assert_eq!(early.join().expect("no panic"), Ok(1));
        });
    }

    #[test]
    fn those_who_came_to_a_start_that_failed_come_to_the_next() {
        let store = Store::new(LocalStore::default());
        let failed = agree_on_start(&store, 0, 3, SHORT).expect_err("it is alone");
        assert_eq!(failed.culprits(), [1, 2]);
        assert!(
            failed.to_string().starts_with("joining the world: ranks 1, 2 of 3 did not come within 300ms"),
            "{failed}"
        );
        thread::scope(|scope| {
            let early = scope.spawn(|| agree_on_start(&store, 1, 3, LONG));
            while !store.check(&[&seat("1", 1)]).expect("a store") {
                thread::yield_now();
            }
            let others = [2, 0].map(|rank| {
                scope.spawn({
                    let store = &store;
                    move || agree_on_start(store, rank, 3, LONG)
                })
            });
            assert_eq!(early.join().expect("no panic"), Ok(1));
            others.into_iter().for_each(|other| assert_eq!(other.join().expect("no panic"), Ok(1)));
        });
    }

    #[test]
    fn rank_0_is_named_where_it_does_not_come() {
        let store = Store::new(LocalStore::default());
        assert_eq!(agree_on_start(&store, 1, 2, SHORT).expect_err("it is alone").culprits(), [0]);
        all(&store, 2);
        assert_eq!(agree_on_start(&store, 1, 2, SHORT).expect_err("it is alone").culprits(), [0]);
    }
}
