//! Which start of a job this is, where no launcher says it alike on all hosts: the ranks agree on it by the store that they share, on which
//! those of earlier starts have left what they told.
//!
//! Rank 0 opens a round, and answers with the words of all whom it has heard in it. Each of the others says a word of its own there, and
//! believes no answer without it: that is one to ranks of before, whose rank 0 ended behind it.

use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::store::{Store, StoreError};
use phalanx_core::{Error, Layout, Ranks, Result};

use super::host_name;
use crate::moment;

/// A number that all ranks of one start of the job get, and those of no earlier start had: how many of them have begun to meet on this store
/// before.
///
/// # Errors
///
/// [`Setup`](phalanx_core::ErrorKind::Setup) with the ranks that did not come, and for a rank that is not below the size.
pub fn agree_on_start(store: &Store, rank: usize, size: usize, timeout: Duration) -> Result<u32> {
    Layout::one_host(rank, size)?;
    let start = Start { store: store.clone(), rank, size, timeout, until: moment::after(timeout) };
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

/// What a rank says when it comes.
struct Word {
    /// By which it knows an answer to itself.
    word: String,
    size: usize,
    /// Which process it is.
    bearer: String,
}

impl Start {
    fn open(&self) -> Result<String> {
        let former = self.bounded().find(ROUND)?.map(text);
        let round = self.bounded().add(COUNT, 1)?.to_string();
        // Who came before this rank waits there, and looks for another round once it hears of none of its words.
        if let Some(former) = &former {
            self.bounded().set(&answer(former), "")?;
        }
        self.bounded().set(ROUND, &round)?;
        let seats: Vec<String> = (1..self.size).map(|rank| seat(&round, rank)).collect();
        let all: Vec<&str> = seats.iter().map(String::as_str).collect();
        let came = self.bounded().wait(&all);
        let (heard, verdict) = match came {
            Ok(()) => (self.grace().multi_get(&all)?.into_iter().map(Some).collect(), None),
            Err(error @ StoreError::Timeout { .. }) => (self.heard(&seats)?, Some(error)),
            Err(error) => return Err(error.into()),
        };
        let heard: Vec<Vec<Word>> = heard.into_iter().map(|said| said.map_or(vec![], Word::all)).collect();
        let end = self.disagreement(&heard).or_else(|| verdict.map(|error| self.missed(&heard, error)));
        self.tell(&round, &heard, end.as_ref())?;
        // One that has not come may be about to look there.
        if let Some(former) = former.filter(|_| end.is_none()) {
            self.grace().delete(&answer(&former))?;
        }
        end.map_or(Ok(round), |verdict| Err(failed(verdict)))
    }

    /// What those have said who came, where not all did.
    fn heard(&self, seats: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
        Ok(seats.iter().map(|seat| self.grace().find(seat)).collect::<Result<_, _>>()?)
    }

    /// That two came as one rank, or that ranks expect different numbers of them.
    fn disagreement(&self, heard: &[Vec<Word>]) -> Option<Verdict> {
        let numbered = || (1..).zip(heard);
        let twice = numbered().find_map(|(rank, words)| {
            let [first, second, ..] = &words[..] else { return None };
            Some((vec![], format!("rank {rank} came twice: as {} and as {}", first.bearer, second.bearer)))
        });
        let other = || {
            numbered().find_map(|(rank, words)| {
                let word = words.iter().find(|word| word.size != self.size)?;
                let why = format!("rank {rank} came to meet {} ranks, rank 0 to meet {}", word.size, self.size);
                Some((vec![], why))
            })
        };
        twice.or_else(other)
    }

    fn missed(&self, heard: &[Vec<Word>], error: StoreError) -> Verdict {
        let missing = (1..).zip(heard).filter(|(_, words)| words.is_empty()).map(|(rank, _)| rank).collect();
        self.absent(missing, error)
    }

    /// Answers all who were heard, in the same words where this does not come to anything.
    fn tell(&self, round: &str, heard: &[Vec<Word>], end: Option<&Verdict>) -> Result<()> {
        let verdict = end.map_or(String::new(), |(culprits, why)| {
            let culprits: Vec<String> = culprits.iter().map(ToString::to_string).collect();
            format!("{};{}", culprits.join(","), why.replace('\n', " "))
        });
        let words = (1..).zip(heard).flat_map(|(rank, words)| {
            words.iter().map(move |Word { word, bearer, .. }| format!("\n{rank} {word} {bearer}"))
        });
        let said: String = std::iter::once(verdict).chain(words).collect();
        Ok(self.grace().set(&answer(round), said)?)
    }

    fn follow(&self) -> Result<String> {
        let word = fastrand::u128(..).to_string();
        let own = format!("{word} {} {} pid {}\n", self.size, host_name(), std::process::id());
        let mut round = self.bounded().get(ROUND).map(text).map_err(|error| self.unopened(error))?;
        loop {
            self.bounded().append(&seat(&round, self.rank), &own)?;
            let said = self.bounded().get(&answer(&round)).map(text);
            // Rank 0 looks there no more, whosever rank it is, or is to find it no more.
            let _ = self.grace().delete(&seat(&round, self.rank));
            let said = said.map_err(|error| self.late(&round, error))?;
            let (verdict, words) = said.split_once('\n').unwrap_or((&said, ""));
            let mut heard = words.lines().filter_map(|line| line.split_once(' '));
            if heard.clone().any(|(_, heard)| heard.starts_with(&format!("{word} "))) {
                return read_verdict(verdict).map_or(Ok(round), Err);
            }
            let namesake = heard.find(|(rank, _)| *rank == self.rank.to_string());
            let namesake = namesake.and_then(|(_, heard)| heard.split_once(' ')).map(|(_, bearer)| bearer.to_owned());
            round = self.another(&round, namesake)?;
        }
    }

    /// The round that follows one whose answer was to others. Stores tell of keys that come, not of those that change.
    fn another(&self, round: &str, namesake: Option<String>) -> Result<String> {
        let mut pause = Duration::from_millis(1);
        loop {
            let current = self.grace().get(ROUND).map(text)?;
            if current != round {
                return Ok(current);
            }
            if Instant::now() >= self.until {
                let before = namesake
                    .map_or("before that".to_owned(), |bearer| format!("that had {bearer} as rank {}", self.rank));
                return Err(self.unopened(format!("its last round was one {before}")));
            }
            thread::sleep(pause);
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// The store, which is asked for what is left of the time.
    fn bounded(&self) -> Store {
        self.store.with_timeout(moment::left(self.until))
    }

    /// The store for what is to be said or asked once the time is over.
    fn grace(&self) -> Store {
        self.store.with_timeout(moment::left(self.until).max(GRACE))
    }

    /// Names those who have said nothing in a round, where rank 0 has not told it before; rank 0, where all have.
    fn late(&self, round: &str, error: StoreError) -> Error {
        if !matches!(error, StoreError::Timeout { .. }) {
            return error.into();
        }
        // This rank has just taken away what it said.
        let others = (1..self.size).filter(|rank| *rank != self.rank);
        let is_missing = |rank: &usize| !self.grace().check(&[&seat(round, *rank)]).unwrap_or(true);
        let missing: Vec<usize> = others.filter(is_missing).collect();
        failed(self.absent(if missing.is_empty() { vec![0] } else { missing }, error))
    }

    fn unopened(&self, why: impl std::fmt::Display) -> Error {
        failed(self.absent(vec![0], why))
    }

    fn absent(&self, missing: Vec<usize>, why: impl std::fmt::Display) -> Verdict {
        let (who, size, within) = (Ranks(&missing).named(), self.size, self.timeout);
        let why = format!("{who} of {size} did not come within {within:?}: {why}");
        (missing, why)
    }
}

/// The ranks at fault, and why it came to nothing.
type Verdict = (Vec<usize>, String);

fn failed((culprits, why): Verdict) -> Error {
    Error::absent(WHAT, why, culprits)
}

/// What rank 0 says a meeting came to nothing of.
fn read_verdict(said: &str) -> Option<Error> {
    let (culprits, why) = said.split_once(';')?;
    Some(failed((culprits.split(',').filter_map(|rank| rank.parse().ok()).collect(), why.to_owned())))
}

impl Word {
    /// Those of all who came as a rank; whatever is none is passed over.
    fn all(said: Vec<u8>) -> Vec<Word> {
        let word = |line: &str| {
            let (word, rest) = line.split_once(' ')?;
            let (size, bearer) = rest.split_once(' ')?;
            Some(Word { word: word.to_owned(), size: size.parse().ok()?, bearer: bearer.to_owned() })
        };
        text(said).lines().filter_map(word).collect()
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
/// How long a rank takes beyond its time to say why it gives up.
const GRACE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::LocalStore;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(300);
    /// Enough for another thread to come.
    const LONGER_THAN_A_MOMENT: Duration = Duration::from_secs(5);

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
        for start in 1..50 {
            thread::scope(|scope| {
                // It finds the answer of the round before, or the round that is opened meanwhile.
                let early = scope.spawn(|| agree_on_start(&store, 1, 2, LONG));
                (0..start).for_each(|_| thread::yield_now());
                assert_eq!(agree_on_start(&store, 0, 2, LONG), Ok(start));
                assert_eq!(early.join().expect("no panic"), Ok(start));
            });
        }
    }

    #[test]
    fn ranks_that_expect_other_sizes_are_told_so_alike() {
        let store = Store::new(LocalStore::default());
        let ends: Vec<String> = thread::scope(|scope| {
            let store = &store;
            let come = |(rank, size)| scope.spawn(move || agree_on_start(store, rank, size, LONG));
            let ranks = [(0, 3), (1, 2), (2, 3)].map(come);
            ranks.map(|rank| rank.join().expect("no panic").expect_err("sizes differ").to_string()).into()
        });
        assert_eq!(ends, ["joining the world: rank 1 came to meet 2 ranks, rank 0 to meet 3"; 3]);
    }

    #[test]
    fn two_that_come_as_one_rank_are_told_so() {
        let store = Store::new(LocalStore::default());
        let ends: Vec<String> = thread::scope(|scope| {
            let store = &store;
            let come = |rank| scope.spawn(move || agree_on_start(store, rank, 3, LONG));
            let twice = [come(1), come(1)];
            // A round that nobody has opened before holds them until rank 0 comes, which waits for rank 2 as well.
            let first = come(0);
            while store.find(&seat("1", 1)).expect("a store").is_none_or(|said| Word::all(said).len() < 2) {
                thread::yield_now();
            }
            let ranks = [first, come(2)].into_iter().chain(twice);
            ranks.map(|rank| rank.join().expect("no panic").expect_err("one too many").to_string()).collect()
        });
        let all_told = |end: &String| end.starts_with("joining the world: rank 1 came twice: as ");
        assert!(ends.iter().all(all_told), "{ends:?}");
    }

    #[test]
    fn those_who_came_to_a_start_that_failed_come_to_the_next() {
        let store = Store::new(LocalStore::default());
        let failed = thread::scope(|scope| {
            let other = scope.spawn(|| agree_on_start(&store, 1, 3, LONG).expect_err("one is missing"));
            let first = agree_on_start(&store, 0, 3, LONGER_THAN_A_MOMENT).expect_err("one is missing");
            [first, other.join().expect("no panic")]
        });
        for failed in failed {
            assert_eq!(failed.culprits(), [2], "{failed}");
            assert!(
                failed.to_string().starts_with("joining the world: rank 2 of 3 did not come within 5s"),
                "{failed}"
            );
        }
        assert_eq!(all(&store, 3), [1; 3]);
    }

    #[test]
    fn rank_0_is_named_where_it_does_not_come() {
        let store = Store::new(LocalStore::default());
        assert_eq!(agree_on_start(&store, 1, 2, SHORT).expect_err("it is alone").culprits(), [0]);
        all(&store, 2);
        assert_eq!(agree_on_start(&store, 1, 2, SHORT).expect_err("it is alone").culprits(), [0]);
    }
}
