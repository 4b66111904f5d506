//! How nodes come together before an epoch: each puts its card into the store, and node 0 writes down who is in once all have come.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use phalanx_comm::secure::{Claim, JobKey, JobName, Session};
use phalanx_comm::store::{ClientOptions, StoreAddress, TcpStore};
use phalanx_core::store::{Store, StoreError};

use super::agent::SILENCE;
use super::card::Card;
use super::roster;
use crate::key;

/// Where and as whom a node meets the others.
#[derive(Debug)]
pub(crate) struct Meeting {
    pub(crate) address: StoreAddress,
    pub(crate) key: Option<JobKey>,
    pub(crate) job: JobName,
    pub(crate) insecure: bool,
    pub(crate) epoch: u32,
    pub(crate) node: usize,
    pub(crate) card: Card,
    pub(crate) timeout: Duration,
    pub(crate) way: Mutex<Way>,
}

/// How far a node has come.
#[derive(Debug, Default)]
pub(crate) enum Way {
    /// Its card is nowhere yet.
    #[default]
    Before,
    /// Its card may be in this store.
    There(Store),
    /// It has left without having been there.
    Left,
}

/// The store of the launchers in an epoch, and the cards of all nodes.
pub(crate) type Met = (Store, Vec<Card>);

/// Meets the others. Says in a line why not.
pub(crate) fn meet(meeting: &Meeting) -> Result<Met, String> {
    let deadline = Instant::now() + meeting.timeout;
    let store = meeting.connect(deadline).map_err(|error| key::name_flags(&error.to_string()))?;
    let store = store.scope("launcher").scope(&meeting.epoch.to_string());
    meeting.arrive(&store)?;
    let put = meeting.put_card(&store, deadline, SILENCE).unwrap_or_else(|error| Err(error.to_string()));
    let met = put.and_then(|()| match meeting.node {
        0 => meeting.gather(&store, deadline),
        _ => meeting.await_met(&store, deadline),
    });
    match (met, meeting.node) {
        (Ok(cards), _) => Ok((store, cards)),
        (Err(why), 0) => {
            meeting.call_off(&store, &why);
            Err(why)
        }
        (Err(why), _) => meeting.part(&store).ok_or(why),
    }
}

impl Meeting {
    /// Says that the card may be in the store from now on, unless this node has left already.
    fn arrive(&self, store: &Store) -> Result<(), String> {
        let mut way = self.way.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*way, Way::Left) {
            return Err("this node has left".to_owned());
        }
        *way = Way::There(store.clone());
        Ok(())
    }

    /// Leaves for good: as one who has heard that node 0 gave up, and does not have to be waited for, or for a reason of its own.
    fn part(&self, store: &Store) -> Option<Met> {
        let store = store.with_timeout(FAREWELL);
        if let Ok(true) = store.check(&[OFF]) {
            drop(store.set(&heard(self.card.mark), b""));
            return None;
        }
        self.withdraw()
    }

    /// Gives this node's place up: whoever comes in its name finds it free, and its card does not count any more, even if that is still on
    /// its way. Where it is too late for that, those that have met, this node among them.
    pub(crate) fn withdraw(&self) -> Option<Met> {
        let store = match &mut *self.way.lock().unwrap_or_else(PoisonError::into_inner) {
            Way::There(store) => store.clone(),
            way => {
                *way = Way::Left;
                return None;
            }
        };
        let brief = store.with_timeout(FAREWELL);
        let met = insist(Instant::now() + FAREWELL, || roster::strike(&brief, self.card.mark));
        // A store that does not answer may be gone, and its contents with it.
        let met = met.inspect_err(|error| log::info!("{error}")).ok().flatten();
        met.filter(|cards| cards.get(self.node) == Some(&self.card)).map(|cards| (store, cards))
    }

    /// Reaches the store. After the first epoch it may still serve the one before for a moment.
    fn connect(&self, deadline: Instant) -> Result<Store, StoreError> {
        let mut pause = Duration::from_millis(10);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match TcpStore::connect(self.options().timeout(left)) {
                Ok(store) => return Ok(Store::new(store).with_timeout(CALL)),
                Err(StoreError::Denied { .. }) if left > pause && self.epoch > 0 => {}
                Err(error) => return Err(error),
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    fn options(&self) -> ClientOptions {
        let options = ClientOptions::new(self.address.clone()).insecure(self.insecure);
        let options = match Session::mint() {
            Ok(session) => options.claim(Claim::new(self.job.clone(), self.epoch, session)),
            // The server says what it thinks of a client without a claim.
            Err(_) => options,
        };
        match &self.key {
            Some(key) => options.key(key.clone()),
            None => options,
        }
    }
}

/// Asks again while the store fails and there is time. What is asked twice must do no harm.
pub(super) fn insist<T>(deadline: Instant, ask: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
    loop {
        match ask() {
            Err(StoreError::Timeout { .. } | StoreError::Lost { .. }) if Instant::now() < deadline => {}
            answer => return answer,
        }
    }
}

/// Where a node's card is.
pub(super) fn card_key(node: usize) -> String {
    format!("node/{node}")
}

/// Where the node with a card of this mark says that it knows of the end.
pub(super) fn heard(mark: u64) -> String {
    format!("heard/{mark}")
}

/// Where node 0 says why the nodes do not meet.
pub(super) const OFF: &str = "off";
/// How long node 0 waits until the others have looked, and how long a node that leaves tries to say so.
pub(super) const FAREWELL: Duration = Duration::from_secs(2);
/// How long one call to the store may take, unless it waits for something.
const CALL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::super::sample::{BRIEF, LONG, gather, meeting, put, store};
    use super::*;

    #[test]
    fn a_node_that_gives_up_by_itself_leaves_its_place() {
        let store = store();
        let waiting = meeting(1, 7, &store);
        assert_eq!(put(1, 7, &store, BRIEF), Ok(()));
        assert!(waiting.part(&store).is_none());
        let has_heard = || store.check(&[&heard(waiting.card.mark)]).unwrap();
        assert!(roster::gone(&store) == [waiting.card.mark] && !has_heard());
        store.set(OFF, b"no").unwrap();
        assert!(waiting.part(&store).is_none() && has_heard());
    }

    #[test]
    fn a_node_that_leaves_gives_up_its_own_place_alone() {
        let store = store();
        assert_eq!([0, 1, 2].map(|node| put(node, 7, &store, BRIEF)), [Ok(()), Ok(()), Ok(())]);
        assert!(meeting(1, 8, &store).withdraw().is_none());
        assert!(!roster::gone(&store).contains(&meeting(1, 7, &store).card.mark));
        assert!(meeting(1, 7, &store).withdraw().is_none());
        assert_eq!(put(1, 9, &store, LONG), Ok(()));
        assert_eq!(gather(&store).map(|cards| cards[1].pid), Ok(9));
    }

    #[test]
    fn a_node_that_leaves_too_late_hears_with_whom_it_has_met() {
        let store = store();
        assert_eq!([0, 1, 2].map(|node| put(node, 7, &store, BRIEF)), [Ok(()), Ok(()), Ok(())]);
        let cards = gather(&store).unwrap();
        let met = |pid| meeting(1, pid, &store).withdraw().map(|(_, cards)| cards);
        assert_eq!((met(7), met(8)), (Some(cards), None));
    }

    #[test]
    fn a_node_that_has_left_puts_no_card_anywhere() {
        let store = store();
        let late = Meeting { way: Mutex::default(), ..meeting(1, 7, &store) };
        assert!(late.withdraw().is_none());
        assert!(late.arrive(&store).is_err());
    }
}
