//! The meeting of all ranks: each brings a card and gets all cards, or all learn why it did not take place.
//!
//! Note *how a meeting goes*. A rank appends its card to a list, then adds one to a counter. Whoever makes the counter
//! `size` knows that all cards are in the list, reads it, and decides the outcome; the others wait for that. Whoever
//! runs out of patience decides as well, from the list as it is then. The outcome is put in place by comparing with
//! nothing, so the first decision is everybody's, and a late rank finds it too. That is three requests a rank, and six
//! more for the one that decides. Every use of a meeting is a generation with keys of its own. Whoever decides one
//! removes the keys of the one before: all came, so nobody looks there any more. Those of the last go with the last rank
//! that [ends](Meeting::end) the meeting.

use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use phalanx_core::Ranks;
use phalanx_core::store::{Store, StoreError};

use super::MeetError;
use super::arrival::{Arrival, missing};
use super::outcome::{Judge, Outcome};

/// A place where all ranks meet, again and again; with empty cards it is a barrier.
///
/// Every rank has a `Meeting` of the same name and size on the same store, and uses it equally often. After a meeting
/// that failed the next one can be tried: all ranks have seen, or will see, the same failure.
#[derive(Debug)]
#[must_use]
pub struct Meeting {
    store: Store,
    name: String,
    rank: usize,
    size: usize,
    naming: fn(&[u8]) -> String,
    interval: Duration,
    /// How often this rank was there.
    generation: Mutex<u64>,
}

impl Meeting {
    /// The meeting `name` of `size` ranks, for `rank`.
    pub fn new(store: Store, name: impl Into<String>, rank: usize, size: usize) -> Meeting {
        let naming = |_: &[u8]| "this rank".to_owned();
        Meeting { store, name: name.into(), rank, size, naming, interval: INTERVAL, generation: Mutex::new(0) }
    }

    /// How the bearer of a card is named where two come as one rank.
    pub fn naming(self, naming: fn(&[u8]) -> String) -> Meeting {
        Meeting { naming, ..self }
    }

    /// How often the rank that came first says in the log who is still missing. 10 s unless set.
    pub fn interval(self, interval: Duration) -> Meeting {
        Meeting { interval: interval.max(Duration::from_millis(1)), ..self }
    }

    /// The same for a rank that was there this often.
    pub(super) fn after(self, visits: u64) -> Meeting {
        Meeting { generation: Mutex::new(visits), ..self }
    }

    /// Comes with `card`, waits for all, and returns their cards in rank order.
    ///
    /// Ends within `timeout`, for which the last 250 ms or the last eighth serve to tell the others.
    ///
    /// # Errors
    ///
    /// [`Missing`](MeetError::Missing) where ranks did not come in time, which all that came are told alike; [`Twice`](MeetError::Twice) and
    /// [`Sizes`](MeetError::Sizes) where they do not fit each other, [`Busy`](MeetError::Busy) and [`Rank`](MeetError::Rank) where this one does
    /// not belong there. Else the store is at fault.
    pub fn meet(&self, card: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, MeetError> {
        self.meet_since(Instant::now(), card, timeout)
    }

    /// The same where the time began to run before.
    pub(super) fn meet_since(&self, began: Instant, card: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, MeetError> {
        self.visit(began, card, timeout, |visit| {
            visit.arrive()?;
            visit.stay()
        })
    }

    /// Comes with `card` and does not wait; the others learn that this rank was there.
    ///
    /// # Errors
    ///
    /// [`Busy`](MeetError::Busy) and [`Rank`](MeetError::Rank) where this rank does not belong there; else the store is at fault. Whether the
    /// others come it does not learn.
    pub fn pass(&self, card: &[u8], timeout: Duration) -> Result<(), MeetError> {
        self.visit(Instant::now(), card, timeout, |visit| {
            visit.arrive()?;
            // Those who stay find out themselves where this goes wrong.
            if visit.is_last()
                && let Err(error) = visit.conclude()
            {
                log::debug!("{}: {error}", self.name);
            }
            Ok(())
        })
    }

    /// Needs this meeting no more, which took place. The last of all ranks to say so removes what it left on the store.
    /// Whether that went well concerns nobody, so it is only noted.
    pub fn end(self, timeout: Duration) {
        let store = self.store.with_timeout(timeout);
        let latest = self.generation.lock().unwrap_or_else(PoisonError::into_inner).saturating_sub(1);
        let ended = format!("{}/{ENDED}", self.name);
        let end = || match store.add(&ended, 1)? {
            count if count == self.size as i64 => {
                let keys = [CARDS, COUNT, ALL].map(|part| self.key(latest, part));
                keys.iter().chain([&ended]).try_for_each(|key| store.delete(key).map(drop))
            }
            _ => Ok::<_, StoreError>(()),
        };
        end().unwrap_or_else(|error| log::debug!("{}: {error}", self.name));
    }

    fn visit<R>(
        &self,
        began: Instant,
        card: &[u8],
        timeout: Duration,
        go: impl FnOnce(&mut Visit<'_>) -> Result<R, MeetError>,
    ) -> Result<R, MeetError> {
        let mut generation = match self.generation.try_lock() {
            Ok(generation) => generation,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(MeetError::Busy),
        };
        let mut visit = Visit { meeting: self, card, generation: *generation, came: 0, began, timeout };
        *generation += 1;
        go(&mut visit)
    }
}

/// One rank's part in one generation.
struct Visit<'a> {
    meeting: &'a Meeting,
    card: &'a [u8],
    generation: u64,
    /// Which one this rank was to come, beginning with 1.
    came: u64,
    began: Instant,
    timeout: Duration,
}

impl Visit<'_> {
    fn arrive(&mut self) -> Result<(), MeetError> {
        let Meeting { rank, size, .. } = *self.meeting;
        if rank >= size {
            return Err(MeetError::Rank { rank, size });
        }
        // The card first: whoever sees the full count must find all cards.
        self.store().append(&self.key(CARDS), Arrival { rank, size, card: self.card }.encode())?;
        let count = self.key(COUNT);
        let came = self.store().add(&count, 1)?;
        self.came = u64::try_from(came).map_err(|_| MeetError::Garbled { key: count })?;
        Ok(())
    }

    fn is_last(&self) -> bool {
        self.came == self.meeting.size as u64
    }

    /// Waits for the outcome, decides it where this rank is the last to come or the first to run out of patience.
    fn stay(&self) -> Result<Vec<Vec<u8>>, MeetError> {
        if self.is_last() {
            return self.conclude();
        }
        let give_up = self.timeout - (self.timeout / 8).min(LAST_WORDS);
        loop {
            let left = give_up.saturating_sub(self.began.elapsed());
            match self.meeting.store.with_timeout(left.min(self.meeting.interval)).get(&self.key(ALL)) {
                Ok(outcome) => return self.take(&outcome),
                Err(error) if !error.is_timeout() => return Err(error.into()),
                Err(_) if self.began.elapsed() >= give_up => return self.conclude(),
                Err(_) => self.say_who_is_missing()?,
            }
        }
    }

    /// Decides the outcome from those who are there, or learns that it was decided before.
    fn conclude(&self) -> Result<Vec<Vec<u8>>, MeetError> {
        let cards = self.key(CARDS);
        let list = self.store().find(&cards)?.unwrap_or_default();
        let ours = match Arrival::decode_list(&list) {
            Some(arrivals) => self.judge().judge(&arrivals),
            None => Outcome::Failed(MeetError::Garbled { key: cards }),
        };
        let outcome = self.store().compare_set(&self.key(ALL), "", ours.encode())?;
        if self.is_last() {
            self.forget_the_one_before();
        }
        self.take(&outcome)
    }

    /// What the outcome means for this rank.
    fn take(&self, outcome: &[u8]) -> Result<Vec<Vec<u8>>, MeetError> {
        let Meeting { rank, size, .. } = *self.meeting;
        let garbled = || MeetError::Garbled { key: self.key(ALL) };
        match Outcome::decode(outcome).ok_or_else(garbled)? {
            Outcome::Failed(error) => Err(error),
            Outcome::All(cards) if cards.len() != size => Err(garbled()),
            // All met with somebody else in this rank's place, who was first.
            Outcome::All(cards) if self.came > size as u64 || cards[rank] != self.card => {
                Err(self.judge().twice(rank, &cards[rank], self.card))
            }
            Outcome::All(cards) => Ok(cards),
        }
    }

    /// The rank that came first speaks for all, so that not every rank reads every card.
    fn say_who_is_missing(&self) -> Result<(), MeetError> {
        let Meeting { name, size, .. } = self.meeting;
        if self.came != 1 || !log::log_enabled!(log::Level::Warn) {
            return Ok(());
        }
        let list = self.store().find(&self.key(CARDS))?.unwrap_or_default();
        let missing = missing(&Arrival::decode_list(&list).unwrap_or_default(), *size);
        if !missing.is_empty() {
            log::warn!("{name}: waiting for {} of {size} ({:.0?})", Ranks(&missing).named(), self.began.elapsed());
        }
        Ok(())
    }

    /// Nobody needs it, so a failure is no more than a note: the meeting took place.
    fn forget_the_one_before(&self) {
        let Some(before) = self.generation.checked_sub(1) else { return };
        let keys = [CARDS, COUNT, ALL].map(|part| self.meeting.key(before, part));
        let gone = keys.iter().try_for_each(|key| self.store().delete(key).map(drop));
        if let Err(error) = gone {
            log::debug!("{}: {error}", self.meeting.name);
        }
    }

    fn judge(&self) -> Judge {
        let Meeting { rank, size, naming, .. } = *self.meeting;
        Judge { rank, size, naming, patience: self.timeout }
    }

    /// The store for what is left of the time.
    fn store(&self) -> Store {
        self.meeting.store.with_timeout(self.timeout.saturating_sub(self.began.elapsed()))
    }

    fn key(&self, part: &str) -> String {
        self.meeting.key(self.generation, part)
    }
}

impl Meeting {
    fn key(&self, generation: u64, part: &str) -> String {
        format!("{}/{generation}/{part}", self.name)
    }
}

const CARDS: &str = "cards";
const COUNT: &str = "count";
const ALL: &str = "all";
const ENDED: &str = "ended";
const INTERVAL: Duration = Duration::from_secs(10);
/// What the end of a meeting needs at most: reading the list and writing the outcome.
const LAST_WORDS: Duration = Duration::from_millis(250);

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
