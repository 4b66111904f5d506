//! One change of a world's members: who will be in the next world, decided once for all who ask.
//!
//! Whoever wants to be in it, a rank of this world or a newcomer, writes down who it is. The rank that sees that all ranks of this
//! world but the lost ones are there decides, or whichever runs out of patience first, from what is written then. The decision is put in
//! place by comparing with nothing, so the first is everybody's: of two parts of a world that lost each other only one goes on.

use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::store::{Store, StoreError};

use super::bytes::{Reader, put_bytes};
use crate::moment;

/// The keys of the changes of one job and epoch.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    base: Store,
    /// Until when the store is asked.
    until: Instant,
}

/// Somebody who wants to be in the next world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Tells it from all others, whoever has its rank.
    pub(super) token: [u8; 16],
    /// Its rank in this world; none for a newcomer.
    pub(super) seat: Option<u32>,
    pub(super) card: Vec<u8>,
}

/// Who decides, where it may.
pub(super) struct Elector<'a> {
    /// The size of this world.
    pub(super) size: usize,
    /// The ranks that are not waited for, nor let in.
    pub(super) lost: &'a [usize],
    /// How long to wait for the others.
    pub(super) patience: Duration,
}

impl Changes {
    /// Those on `base`, which may be gone: it is asked until then, and for no longer than it says at once.
    pub(super) fn new(base: &Store, until: Instant) -> Changes {
        Changes { base: base.scope("change"), until }
    }

    /// The number of the last change.
    pub(super) fn current(&self) -> Result<u32, StoreError> {
        let text = self.in_time(&self.base).find(CURRENT)?.unwrap_or_default();
        Ok(std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).unwrap_or(0))
    }

    /// The keys of the world that this change makes.
    pub(super) fn scope(&self, number: u32) -> Store {
        self.base.scope(&number.to_string())
    }

    /// How many newcomers wait for this change.
    pub(super) fn waiting(&self, number: u32) -> Result<usize, StoreError> {
        Ok(usize::try_from(self.asked(number).add(WAITING, 0)?).unwrap_or_default())
    }

    /// Writes down that somebody wants to be in the world that this change makes.
    pub(super) fn enter(&self, number: u32, entry: &Entry) -> Result<(), StoreError> {
        self.asked(number).append(ENTRIES, entry.encode())?;
        match entry.seat {
            Some(_) => Ok(()),
            None => self.asked(number).add(WAITING, 1).map(drop),
        }
    }

    /// Takes back that a newcomer wants to be in the world that this change makes.
    pub(super) fn withdraw(&self, number: u32, entry: &Entry) -> Result<(), StoreError> {
        let scope = self.asked(number);
        scope.append(ENTRIES, Entry { seat: Some(WITHDRAWN), card: vec![], ..entry.clone() }.encode())?;
        scope.add(WAITING, -1).map(drop)
    }

    /// Waits until it is decided who is in the next world, and decides where an `elector` may. None where it is not by then; nobody where
    /// that was so long ago that it is forgotten.
    pub(super) fn outcome(
        &self,
        number: u32,
        elector: Option<&Elector<'_>>,
        deadline: Instant,
    ) -> Result<Option<Vec<Entry>>, StoreError> {
        let (scope, began) = (self.scope(number), Instant::now());
        loop {
            if self.is_forgotten(number)? {
                return Ok(Some(vec![]));
            }
            let entries = elector.map(|elector| self.entries(number).map(|entries| (elector, entries))).transpose()?;
            if let Some((elector, entries)) = entries
                && (elector.is_complete(&entries) || began.elapsed() >= elector.patience)
            {
                return self.decide(number, &elector.elect(entries)).map(Some);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let patience = elector.map_or(left, |elector| elector.patience.saturating_sub(began.elapsed()));
            let wait = left.min(patience).min(LOOK).max(Duration::from_millis(1));
            match scope.with_timeout(wait).get(OUTCOME) {
                Ok(outcome) => return Ok(Some(Entry::decode_list(&outcome))),
                Err(error) if !error.is_timeout() => return Err(error),
                Err(_) if left.is_zero() => return Ok(None),
                Err(_) => {}
            }
        }
    }

    fn entries(&self, number: u32) -> Result<Vec<Entry>, StoreError> {
        Ok(Entry::decode_list(&self.asked(number).find(ENTRIES)?.unwrap_or_default()))
    }

    fn decide(&self, number: u32, elected: &[Entry]) -> Result<Vec<Entry>, StoreError> {
        let ours: Vec<u8> = elected.iter().flat_map(Entry::encode).collect();
        let outcome = self.put_down(number, &ours)?;
        if self.is_forgotten(number)? {
            return Ok(vec![]);
        }
        // It is decided: the others go on with this rank, whatever becomes of the rest.
        if let Err(error) = self.raise(number) {
            log::warn!("change {number} of the world is not told to newcomers: {error}");
        }
        // Who is in this change has left the world before the last for good.
        if let Some(old) = number.checked_sub(2).filter(|old| *old > 0) {
            self.forget(old);
        }
        Ok(Entry::decode_list(&outcome))
    }

    /// Puts a decision in place and returns the one that is everybody's. Where the answer is lost with the connection, asking again
    /// tells it.
    fn put_down(&self, number: u32, ours: &[u8]) -> Result<Vec<u8>, StoreError> {
        loop {
            match self.asked(number).compare_set(OUTCOME, "", ours) {
                Err(StoreError::Lost { .. } | StoreError::Timeout { .. }) if !moment::left(self.until).is_zero() => {
                    thread::sleep(PAUSE);
                }
                answer => return answer,
            }
        }
    }

    /// Whether this change is so long past that its keys are gone, but for what somebody has written since who slept all the time. Nobody
    /// is in it any more: without its outcome it looks like one that is still to come.
    fn is_forgotten(&self, number: u32) -> Result<bool, StoreError> {
        let is_forgotten = self.current()? >= number.saturating_add(2);
        if is_forgotten {
            self.forget(number);
        }
        Ok(is_forgotten)
    }

    /// Deletes the keys of this change. Where they stay, nobody looks at them any more; not every store can list them.
    fn forget(&self, number: u32) {
        let scope = self.asked(number);
        let keys = scope.list_keys().and_then(|keys| keys.iter().try_for_each(|key| scope.delete(key).map(drop)));
        if let Err(error) = keys {
            log::debug!("what was stored for change {number} of the world stays: {error}");
        }
    }

    /// Makes it known that this change has taken place, unless a later one has.
    fn raise(&self, number: u32) -> Result<(), StoreError> {
        loop {
            let current = self.current()?;
            let before = if current == 0 { String::new() } else { current.to_string() };
            if current >= number
                || self.in_time(&self.base).compare_set(CURRENT, before, number.to_string())?
                    == number.to_string().as_bytes()
            {
                return Ok(());
            }
        }
    }

    fn asked(&self, number: u32) -> Store {
        self.in_time(&self.scope(number))
    }

    fn in_time(&self, store: &Store) -> Store {
        store.with_timeout(moment::left(self.until).min(store.timeout()))
    }
}

impl Elector<'_> {
    fn is_complete(&self, entries: &[Entry]) -> bool {
        let came = |rank: usize| entries.iter().any(|entry| entry.seat.is_some_and(|seat| seat as usize == rank));
        (0..self.size).filter(|rank| !self.lost.contains(rank)).all(came)
    }

    /// Ranks of this world in their order, then newcomers as they came, but for those who have gone again. Whoever came twice counts once.
    fn elect(&self, entries: Vec<Entry>) -> Vec<Entry> {
        let mut elected: Vec<Entry> = vec![];
        let gone: Vec<[u8; 16]> =
            entries.iter().filter(|entry| entry.seat == Some(WITHDRAWN)).map(|entry| entry.token).collect();
        for entry in entries.into_iter().filter(|entry| !gone.contains(&entry.token)) {
            let seat = entry.seat.map(|seat| seat as usize);
            let is_lost = seat.is_some_and(|seat| seat >= self.size || self.lost.contains(&seat));
            let is_known = |known: &Entry| known.token == entry.token || (seat.is_some() && known.seat == entry.seat);
            if !is_lost && !elected.iter().any(is_known) {
                elected.push(entry);
            }
        }
        elected.sort_by_key(|entry| entry.seat.map_or(u64::MAX, u64::from));
        elected
    }
}

impl Entry {
    fn encode(&self) -> Vec<u8> {
        let mut out = self.token.to_vec();
        out.extend(self.seat.unwrap_or(NO_SEAT).to_le_bytes());
        put_bytes(&mut out, &self.card);
        out
    }

    /// All entries up to the first that makes no sense.
    fn decode_list(bytes: &[u8]) -> Vec<Entry> {
        let mut reader = Reader::new(bytes);
        std::iter::from_fn(|| {
            let token = reader.take(16)?.try_into().ok()?;
            let seat = Some(reader.u32()?).filter(|seat| *seat != NO_SEAT);
            Some(Entry { token, seat, card: reader.bytes()?.to_vec() })
        })
        .collect()
    }
}

const CURRENT: &str = "current";
const ENTRIES: &str = "entries";
const WAITING: &str = "waiting";
const OUTCOME: &str = "outcome";
const NO_SEAT: u32 = u32::MAX;
/// The seat of a newcomer that has gone again.
const WITHDRAWN: u32 = u32::MAX - 1;
/// How often somebody who waits looks whether the change was forgotten.
const LOOK: Duration = Duration::from_secs(5);
/// How long to wait before a store that has lost an answer is asked again.
const PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use phalanx_core::store::Limits;

    use super::*;
    use crate::store::LocalStore;

    fn changes() -> Changes {
        Changes::new(&Store::new(LocalStore::new(Limits::default())), moment::after(Duration::MAX))
    }

    fn entry(token: u8, seat: Option<u32>) -> Entry {
        Entry { token: [token; 16], seat, card: vec![token; 3] }
    }

    fn elector(lost: &[usize]) -> Elector<'_> {
        Elector { size: 3, lost, patience: Duration::ZERO }
    }

    #[test]
    fn ranks_come_first_and_lost_ones_stay_out() {
        let came = [
            entry(9, None),
            entry(2, Some(2)),
            entry(1, Some(1)),
            entry(0, Some(0)),
            entry(7, Some(2)),
            entry(9, None),
        ];
        let elected =
            |lost: &[usize]| elector(lost).elect(came.to_vec()).iter().map(|entry| entry.token[0]).collect::<Vec<_>>();
        assert_eq!(elected(&[]), [0, 1, 2, 9]);
        assert_eq!(elected(&[0]), [1, 2, 9]);
        assert!(elector(&[]).is_complete(&came) && !elector(&[1]).is_complete(&came[..2]));
        assert!(elector(&[0]).is_complete(&came[..3]));
    }

    #[test]
    fn the_first_decision_is_everybodys() {
        let changes = changes();
        let (one, other) = ([entry(0, Some(0))], [entry(1, Some(1)), entry(4, None)]);
        assert_eq!(changes.decide(1, &one), Ok(one.to_vec()));
        assert_eq!(changes.decide(1, &other), Ok(one.to_vec()));
        assert_eq!((changes.current(), changes.decide(3, &other)), (Ok(1), Ok(other.to_vec())));
        assert_eq!((changes.raise(2), changes.current()), (Ok(()), Ok(3)));
        assert_eq!(changes.scope(1).list_keys(), Ok(vec![]), "what the change before the last left is gone");
    }

    #[test]
    fn who_slept_through_several_changes_makes_none_of_its_own() {
        let changes = changes();
        (1..=3).for_each(|number| drop(changes.decide(number, &[entry(0, Some(0))]).expect("room")));
        changes.enter(1, &entry(2, Some(2))).expect("room");
        let alone = Elector { size: 3, lost: &[0, 1], patience: Duration::ZERO };
        let late = Instant::now() + Duration::from_secs(60);
        assert_eq!(changes.outcome(1, Some(&alone), late), Ok(Some(vec![])));
        assert_eq!(changes.decide(1, &[entry(2, Some(2))]), Ok(vec![]), "nor when it looked before");
        changes.enter(1, &entry(4, None)).expect("room");
        assert_eq!(changes.outcome(1, None, late), Ok(Some(vec![])), "a newcomer looks for the next one");
        assert_eq!((changes.scope(1).list_keys(), changes.current()), (Ok(vec![]), Ok(3)));
    }

    #[test]
    fn a_newcomer_that_has_gone_is_not_elected() {
        let changes = changes();
        for newcomer in [entry(5, None), entry(6, None)] {
            changes.enter(1, &newcomer).expect("room");
        }
        changes.withdraw(1, &entry(5, None)).expect("room");
        assert_eq!(changes.waiting(1), Ok(1));
        let decided = changes.outcome(1, Some(&elector(&[0, 1, 2])), Instant::now());
        assert_eq!(decided, Ok(Some(vec![entry(6, None)])));
    }

    #[test]
    fn whoever_waits_is_counted_and_waits_no_longer_than_it_may() {
        let changes = changes();
        changes.enter(1, &entry(5, None)).expect("room");
        changes.enter(1, &entry(0, Some(0))).expect("room");
        assert_eq!((changes.waiting(1), changes.waiting(2)), (Ok(1), Ok(0)));
        assert_eq!(changes.outcome(1, None, Instant::now()), Ok(None));
        let decided = changes.outcome(1, Some(&elector(&[])), Instant::now() + Duration::from_secs(60));
        assert_eq!(decided, Ok(Some(vec![entry(0, Some(0)), entry(5, None)])));
    }
}
