//! One change of a world's members: who will be in the next world, decided once for all who ask.
//!
//! Whoever wants to be in it, a rank of this world or a newcomer, writes down who it is. The rank that sees that all ranks of this
//! world but the lost ones are there decides, or whichever runs out of patience first, from what is written then. The decision is put in
//! place by comparing with nothing, so the first is everybody's: of two parts of a world that lost each other only one goes on.
//!
//! What a newcomer has written stands when it is killed. So whoever is about to decide calls the newcomers, and leaves out who does not answer.

use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::Error;
use phalanx_core::store::{Store, StoreError};

use super::election::{Elector, Entry, WITHDRAWN};
use crate::moment;

/// The keys of the changes of one job and epoch.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    base: Store,
    /// Until when the store is asked.
    until: Instant,
}

impl Changes {
    /// Those on `base`, which may be gone: it is asked until then, and for no longer than it says at once.
    pub(super) fn new(base: &Store, until: Instant) -> Changes {
        Changes { base: base.scope("change"), until }
    }

    /// The number of the last change.
    pub(super) fn current(&self) -> Result<u32, StoreError> {
        Ok(self.found()?.0)
    }

    /// The same, and the word that says so. One that is no number says that there was none.
    fn found(&self) -> Result<(u32, Vec<u8>), StoreError> {
        let word = self.in_time(&self.base).find(CURRENT)?.unwrap_or_default();
        let number = std::str::from_utf8(&word).ok().and_then(|text| text.parse().ok());
        Ok((number.unwrap_or(0), word))
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

    /// Waits until it is decided who is in the next world, and decides it where nobody else does. Nobody is, where that was so long ago
    /// that it is forgotten.
    pub(super) fn outcome(&self, number: u32, elector: &Elector<'_>) -> Result<Vec<Entry>, Error> {
        let began = Instant::now();
        loop {
            if self.is_forgotten(number)? {
                return Ok(vec![]);
            }
            let entries = entries_in(&self.asked(number))?;
            let patience = elector.patience.saturating_sub(began.elapsed());
            if elector.is_complete(&entries) || patience.is_zero() {
                let called = Instant::now();
                let elected = self.call_newcomers(number, elector, entries)?;
                // They had time of their own.
                let until = moment::later(self.until, called.elapsed());
                return Changes { until, ..self.clone() }.decide(number, &elected);
            }
            if let Some(outcome) = self.look(number, OUTCOME, patience)? {
                return Ok(Entry::decode_list(&outcome));
            }
        }
    }

    /// Waits until it is decided who is in the next world, and answers for a newcomer when it is called. None where it is not decided by
    /// then; nobody where it is forgotten.
    pub(super) fn hear(
        &self,
        number: u32,
        newcomer: &Entry,
        deadline: Instant,
    ) -> Result<Option<Vec<Entry>>, StoreError> {
        let mut has_answered = false;
        loop {
            if self.is_forgotten(number)? {
                return Ok(Some(vec![]));
            }
            let left = moment::left(deadline);
            match self.look(number, if has_answered { OUTCOME } else { CALLED }, left)? {
                Some(outcome) if has_answered => return Ok(Some(Entry::decode_list(&outcome))),
                Some(_) => {
                    self.asked(number).set(&answer_of(newcomer), YES)?;
                    has_answered = true;
                }
                None if left.is_zero() => return Ok(None),
                None => {}
            }
        }
    }

    /// Who is in the next world, where that is decided already.
    pub(super) fn decided(&self, number: u32) -> Result<Option<Vec<Entry>>, StoreError> {
        Ok(self.asked(number).find(OUTCOME)?.map(|outcome| Entry::decode_list(&outcome)))
    }

    /// What is under a key as soon as it is; none where it is not for so long, or for as long as nobody has looked whether this change is
    /// forgotten.
    fn look(&self, number: u32, key: &str, patience: Duration) -> Result<Option<Vec<u8>>, StoreError> {
        let wait = patience.min(LOOK).max(Duration::from_millis(1));
        match self.scope(number).with_timeout(wait).get(key) {
            Err(error) if error.is_timeout() => Ok(None),
            found => found.map(Some),
        }
    }

    /// Those who are elected of the ranks, and of the newcomers that answer.
    fn call_newcomers(
        &self,
        number: u32,
        elector: &Elector<'_>,
        entries: Vec<Entry>,
    ) -> Result<Vec<Entry>, StoreError> {
        let (scope, elected) = (self.asked(number), elector.elect(entries));
        scope.set(CALLED, YES)?;
        let answers: Vec<String> = elected.iter().filter(|entry| entry.seat.is_none()).map(answer_of).collect();
        let keys: Vec<&str> = answers.iter().map(String::as_str).collect();
        if keys.is_empty() {
            return Ok(elected);
        }
        match scope.with_timeout(ROLL_CALL).wait(&keys) {
            Err(error) if !error.is_timeout() => return Err(error),
            _ => {}
        }
        // That took its time, in which a rank may have come, or one that has answered may have gone.
        let elected = elector.elect(entries_in(&scope)?);
        let is_here = |entry: &Entry| match entry.seat {
            Some(_) => Ok(true),
            None => scope.check(&[&answer_of(entry)]),
        };
        let kept = elected.into_iter().map(|entry| is_here(&entry).map(|is_here| is_here.then_some(entry)));
        kept.filter_map(Result::transpose).collect()
    }

    /// Decides for these, unless it is decided already, and returns those who are in the next world. An empty list is no decision: to
    /// the store it is the same as none, and the next who decides would put another in its place.
    fn decide(&self, number: u32, elected: &[Entry]) -> Result<Vec<Entry>, Error> {
        let ours: Vec<u8> = elected.iter().flat_map(Entry::encode).collect();
        let outcome = match elected {
            [] => self.decided(number)?.filter(|others| !others.is_empty()),
            _ => Some(Entry::decode_list(&self.put_down(number, &ours)?)),
        };
        if self.is_forgotten(number)? {
            return Ok(vec![]);
        }
        let Some(outcome) = outcome else {
            return Err(Error::setup("deciding who is in the next world", "nobody is written down who may be in it"));
        };
        // It is decided: the others go on with this rank, whatever becomes of the rest.
        match self.raise(number) {
            // Who is in this change has left the world before the last for good.
            Ok(()) => number.checked_sub(2).filter(|old| *old > 0).into_iter().for_each(|old| self.forget(old)),
            // Nor may old ones go, as they would look like ones that are still to come.
            Err(error) => log::warn!("change {number} of the world is not told to newcomers: {error}"),
        }
        Ok(outcome)
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
            let (current, word) = self.found()?;
            let ours = number.to_string();
            if current >= number || self.in_time(&self.base).compare_set(CURRENT, word, &*ours)? == ours.as_bytes() {
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

/// Those who have written themselves down for a change, which has this scope.
fn entries_in(scope: &Store) -> Result<Vec<Entry>, StoreError> {
    Ok(Entry::decode_list(&scope.find(ENTRIES)?.unwrap_or_default()))
}

/// The key under which a newcomer answers when it is called.
fn answer_of(newcomer: &Entry) -> String {
    format!("answer/{:032x}", u128::from_be_bytes(newcomer.token))
}

const CURRENT: &str = "current";
const ENTRIES: &str = "entries";
const WAITING: &str = "waiting";
const OUTCOME: &str = "outcome";
const CALLED: &str = "called";
const YES: &str = "yes";
/// How often somebody who waits looks whether the change was forgotten.
const LOOK: Duration = Duration::from_secs(5);
/// How long a newcomer has to answer.
const ROLL_CALL: Duration = Duration::from_secs(2);
/// How long to wait before a store that has lost an answer is asked again.
const PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use phalanx_core::store::{Doubt, Home, Limits, Reply, Request};

    use super::super::election::tests::{elector, entry};
    use super::*;
    use crate::store::LocalStore;

    fn changes() -> Changes {
        Changes::new(&Store::new(LocalStore::new(Limits::default())), moment::after(Duration::MAX))
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
    fn a_word_that_is_no_number_of_ours_gives_way() {
        for word in ["x", "0", "00", "\u{fffd}"] {
            let changes = changes();
            changes.base.set(CURRENT, word).expect("a store");
            assert_eq!((changes.raise(1), changes.current()), (Ok(()), Ok(1)), "{word}");
        }
        let changes = changes();
        changes.base.set(CURRENT, "07").expect("a store");
        assert_eq!((changes.raise(6), changes.raise(8), changes.current()), (Ok(()), Ok(()), Ok(8)));
    }

    #[test]
    fn nobody_is_no_decision() {
        let changes = changes();
        let error = changes.decide(1, &[]).expect_err("nobody").to_string();
        assert_eq!(error, "deciding who is in the next world: nobody is written down who may be in it");
        assert_eq!((changes.decided(1), changes.current()), (Ok(None), Ok(0)), "nothing is put down");
        let one = vec![entry(0, Some(0))];
        assert_eq!((changes.decide(1, &one), changes.decide(1, &[])), (Ok(one.clone()), Ok(one)));
    }

    #[test]
    fn who_slept_through_several_changes_makes_none_of_its_own() {
        let changes = changes();
        (1..=3).for_each(|number| drop(changes.decide(number, &[entry(0, Some(0))]).expect("room")));
        changes.enter(1, &entry(2, Some(2))).expect("room");
        let alone = Elector { size: 3, lost: &[0, 1], patience: Duration::ZERO };
        let late = Instant::now() + Duration::from_secs(60);
        assert_eq!(changes.outcome(1, &alone), Ok(vec![]));
        assert_eq!(changes.decide(1, &[entry(2, Some(2))]), Ok(vec![]), "nor when it looked before");
        changes.enter(1, &entry(4, None)).expect("room");
        assert_eq!(changes.hear(1, &entry(4, None), late), Ok(Some(vec![])), "a newcomer looks for the next one");
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
        changes.asked(1).set(&answer_of(&entry(6, None)), YES).expect("room");
        assert_eq!(changes.outcome(1, &elector(&[0, 1, 2])), Ok(vec![entry(6, None)]));
    }

    /// While another one is waited for that does not answer.
    #[test]
    fn a_newcomer_that_goes_after_it_has_answered_is_not_elected() {
        let changes = changes();
        for newcomer in [entry(5, None), entry(6, None)] {
            changes.enter(1, &newcomer).expect("room");
        }
        let answer = |newcomer| changes.asked(1).set(&answer_of(&newcomer), YES).expect("room");
        thread::scope(|scope| {
            let elected = scope.spawn(|| changes.outcome(1, &elector(&[0, 1, 2])));
            changes.asked(1).get(CALLED).expect("it is called");
            answer(entry(5, None));
            changes.withdraw(1, &entry(5, None)).expect("room");
            answer(entry(6, None));
            assert_eq!(elected.join().expect("no panic"), Ok(vec![entry(6, None)]));
        });
    }

    /// A store that loses what is to become the number of the last change, while it is told to.
    struct Lossy {
        home: LocalStore,
        loses: Arc<AtomicBool>,
    }

    impl Home for Lossy {
        fn ask(&self, request: Request, timeout: Duration) -> Result<Reply, StoreError> {
            let raises = matches!(&request, Request::CompareSet { key, .. } if key.as_bytes().ends_with(b"current"));
            if raises && self.loses.load(Ordering::Relaxed) {
                let verb = request.verb();
                return Err(StoreError::Lost { verb, detail: "it broke".to_owned(), doubt: Doubt::Unknown });
            }
            self.home.ask(request, timeout)
        }

        fn describe(&self) -> String {
            "a lossy store".to_owned()
        }
    }

    #[test]
    fn who_slept_makes_no_change_of_its_own_where_the_last_is_not_told() {
        let loses = Arc::new(AtomicBool::new(false));
        let store = Store::new(Lossy { home: LocalStore::new(Limits::default()), loses: Arc::clone(&loses) });
        let changes = Changes::new(&store, moment::after(Duration::MAX));
        let awake = vec![entry(0, Some(0))];
        for number in 1..=3 {
            loses.store(number == 3, Ordering::Relaxed);
            assert_eq!(changes.decide(number, &awake), Ok(awake.clone()));
        }
        loses.store(false, Ordering::Relaxed);
        changes.enter(1, &entry(2, Some(2))).expect("room");
        let alone = Elector { size: 3, lost: &[0, 1], patience: Duration::ZERO };
        assert_eq!(changes.outcome(1, &alone), Ok(awake.clone()));
        assert_eq!((changes.decide(4, &awake), changes.outcome(1, &alone)), (Ok(awake), Ok(vec![])));
    }

    #[test]
    fn whoever_waits_is_counted_and_waits_no_longer_than_it_may() {
        let changes = changes();
        changes.enter(1, &entry(5, None)).expect("room");
        changes.enter(1, &entry(0, Some(0))).expect("room");
        assert_eq!((changes.waiting(1), changes.waiting(2)), (Ok(1), Ok(0)));
        assert_eq!(changes.hear(1, &entry(5, None), Instant::now()), Ok(None));
        let all = vec![entry(0, Some(0)), entry(5, None)];
        thread::scope(|scope| {
            let heard = scope.spawn(|| changes.hear(1, &entry(5, None), Instant::now() + Duration::from_secs(60)));
            assert_eq!(changes.outcome(1, &elector(&[])), Ok(all.clone()));
            assert_eq!(heard.join().expect("no panic"), Ok(Some(all.clone())));
        });
        assert_eq!(changes.decided(1), Ok(Some(all)));
    }
}
