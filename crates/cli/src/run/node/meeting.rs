//! How nodes come together before an epoch: each puts its card into the store and reads those of all.

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use phalanx_comm::secure::{Claim, JobKey, JobName, Session};
use phalanx_comm::store::{ClientOptions, StoreAddress, TcpStore};
use phalanx_core::store::{Store, StoreError};

use super::agent::{SILENCE, life_key};
use super::card::Card;
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
    /// Where its card is, once it may be there.
    pub(crate) store: OnceLock<Store>,
}

/// The store of the launchers in this epoch, and the cards of all nodes. Says in a line why not.
pub(crate) fn meet(meeting: &Meeting) -> Result<(Store, Vec<Card>), String> {
    let deadline = Instant::now() + meeting.timeout;
    let store = meeting.connect(deadline).map_err(|error| key::name_flags(&error.to_string()))?;
    let store = meeting.store.get_or_init(|| store.scope("launcher").scope(&meeting.epoch.to_string()));
    meeting.put_card(store, deadline, SILENCE).map_err(|error| error.to_string())??;
    let cards = meeting.await_cards(store, deadline).and_then(|cards| meeting.read(&cards));
    match (&cards, meeting.node) {
        (Ok(_), _) => {}
        (Err(why), 0) => meeting.call_off(store, why),
        (Err(_), node) => meeting.part(store, node),
    }
    cards.map(|cards| (store.clone(), cards))
}

impl Meeting {
    /// Leaves for good: as one who has heard that node 0 gave up, and does not have to be waited for, or for a reason of its own.
    fn part(&self, store: &Store, node: usize) {
        let store = store.with_timeout(FAREWELL);
        match store.check(&[OFF]) {
            Ok(true) => drop(store.set(&heard(node), b"")),
            _ => self.withdraw(),
        }
    }

    /// Gives this node's place up, where it leaves before all have come: whoever comes in its name finds it free. Nobody takes it in
    /// between, for this node was not silent.
    pub(crate) fn withdraw(&self) {
        let Some(store) = self.store.get().map(|store| store.with_timeout(FAREWELL)) else { return };
        let there = store.find(&key(self.node)).ok().flatten();
        if there.is_some_and(|there| self.is_mine(&there)) {
            // A store that does not answer may be gone, and its contents with it.
            let _ = store.delete(&key(self.node));
        }
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

    /// Takes this node's place, unless another has it. One that waits there and says nothing for so long is gone.
    fn put_card(&self, store: &Store, deadline: Instant, silence: Duration) -> Result<Result<(), String>, StoreError> {
        loop {
            let there = self.swap_card(store, b"", deadline)?;
            if self.is_mine(&there) {
                return Ok(Ok(()));
            }
            let taken = self.taken(&there);
            if !self.is_forsaken(store, silence)? {
                return Ok(Err(taken));
            }
            // Where the card is another one by now, or none, all begins anew.
            if self.is_mine(&self.swap_card(store, &there, deadline)?) {
                log::warn!("{taken}, who gave no sign of life for {silence:?}: this node takes its place");
                return Ok(Ok(()));
            }
        }
    }

    /// Puts this node's card in the place of another, or of none; the one that is there now. Asking twice does no harm: the card is
    /// this node's own.
    fn swap_card(&self, store: &Store, other: &[u8], deadline: Instant) -> Result<Vec<u8>, StoreError> {
        loop {
            match store.compare_set(&key(self.node), other, self.card.to_text()) {
                Err(StoreError::Timeout { .. } | StoreError::Lost { .. }) if Instant::now() < deadline => {}
                answer => return answer,
            }
        }
    }

    fn is_mine(&self, card: &[u8]) -> bool {
        card == self.card.to_text().as_bytes()
    }

    /// Says whose card is where this node's should be.
    fn taken(&self, card: &[u8]) -> String {
        let other = Card::from_text(card)
            .map_or_else(|| "another".to_owned(), |card| format!("host {}, pid {}", card.host, card.pid));
        format!("--node-rank is {}, which is taken by {other}", self.node)
    }

    /// Whether who has this node's place is silent for so long. Once all have come the epoch is theirs, whatever becomes of them.
    fn is_forsaken(&self, store: &Store, silence: Duration) -> Result<bool, StoreError> {
        let (keys, life) = (self.keys(), life_key(self.node));
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        let count = store.find(&life)?;
        // By looks and not by the clock: a node that was halted itself meanwhile has not seen that another one was silent.
        for _ in 0..LOOKS {
            thread::sleep(silence / LOOKS);
            if store.check(&names)? || store.find(&life)? != count {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for the cards of all nodes, or until node 0 has given up, and shows meanwhile that this node lives.
    fn await_cards(&self, store: &Store, deadline: Instant) -> Result<Vec<Vec<u8>>, String> {
        let keys = self.keys();
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let look = store.with_timeout(left.min(LOOK));
            let _ = look.add(&life_key(self.node), 1);
            match look.multi_get(&names) {
                Ok(cards) => return Ok(cards),
                Err(StoreError::Timeout { .. } | StoreError::Lost { .. }) if left > LOOK => {}
                Err(error) => return Err(self.missing(store, &error)),
            }
            if let Ok(Some(why)) = look.find(OFF) {
                return Err(String::from_utf8_lossy(&why).into_owned());
            }
        }
    }

    /// Tells those who have come why nothing becomes of it, and stays until they have heard: the store goes with this node.
    fn call_off(&self, store: &Store, why: &str) {
        let has_come = |node: &usize| matches!(store.find(&key(*node)), Ok(Some(_)));
        let others: Vec<String> = (1..self.card.nodes).filter(has_come).map(heard).collect();
        let names: Vec<&str> = others.iter().map(String::as_str).collect();
        if !names.is_empty() && store.set(OFF, why.as_bytes()).is_ok() {
            let _ = store.with_timeout(FAREWELL).multi_get(&names);
        }
    }

    fn missing(&self, store: &Store, error: &StoreError) -> String {
        let is_missing = |node: &usize| matches!(store.find(&key(*node)), Ok(None));
        let missing: Vec<String> = (0..self.card.nodes).filter(is_missing).map(|node| node.to_string()).collect();
        if missing.is_empty() || !error.is_timeout() {
            return error.to_string();
        }
        let nodes = if missing.len() == 1 { "node" } else { "nodes" };
        let came = self.card.nodes - missing.len();
        let (missing, all, time) = (missing.join(", "), self.card.nodes, self.timeout);
        format!("{nodes} {missing} never came within {time:?}: {came} of {all} nodes came")
    }

    fn read(&self, cards: &[Vec<u8>]) -> Result<Vec<Card>, String> {
        let cards = cards.iter().zip(0..).map(|(text, node): (_, usize)| {
            let card =
                Card::from_text(text).ok_or_else(|| format!("node {node} speaks another version of this program"))?;
            let (here, own) = (self.node, &self.card);
            if node == here && !self.is_mine(text) {
                return Err(self.taken(text));
            }
            if card.nodes != own.nodes {
                return Err(format!("--nnodes is {} on node {here} and {} on node {node}", own.nodes, card.nodes));
            }
            if card.restarts != own.restarts {
                let (own, other) = (own.restarts, card.restarts);
                return Err(format!("--max-restarts is {own} on node {here} and {other} on node {node}"));
            }
            Ok(card)
        });
        cards.collect()
    }

    fn keys(&self) -> Vec<String> {
        (0..self.card.nodes).map(key).collect()
    }
}

fn key(node: usize) -> String {
    format!("node/{node}")
}

/// Where a node says that it knows of the end.
fn heard(node: usize) -> String {
    format!("heard/{node}")
}

/// Where node 0 says why the nodes do not meet.
const OFF: &str = "off";
/// How often a node that waits for others looks there.
const LOOK: Duration = Duration::from_millis(500);
/// How often a node looks whether the one in its place is silent.
const LOOKS: u32 = 100;
/// How long node 0 waits until the others have looked, and how long a node that leaves tries to say so.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long one call to the store may take, unless it waits for something.
const CALL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use phalanx_comm::store::LocalStore;
    use phalanx_core::store::Limits;

    use super::*;

    fn store() -> Store {
        Store::new(LocalStore::new(Limits::default()))
    }

    /// The node of three that has this process number.
    fn meeting(node: usize, pid: i32, store: &Store) -> Meeting {
        let mark = u64::from(pid.unsigned_abs());
        let card = Card { host: "h".to_owned(), pid, mark, ranks: 1, nodes: 3, restarts: 0, master: None };
        Meeting {
            address: StoreAddress::tcp("127.0.0.1", 1),
            key: None,
            job: JobName::default(),
            insecure: false,
            epoch: 0,
            node,
            card,
            timeout: SILENCE,
            store: OnceLock::from(store.clone()),
        }
    }

    fn put(node: usize, pid: i32, store: &Store, silence: Duration) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(60);
        meeting(node, pid, store).put_card(store, deadline, silence).unwrap()
    }

    fn taken(pid: i32) -> Result<(), String> {
        Err(format!("--node-rank is 1, which is taken by host h, pid {pid}"))
    }

    #[test]
    fn a_place_is_taken_over_from_one_that_is_silent() {
        let store = store();
        assert_eq!([7, 7, 8].map(|pid| put(1, pid, &store, BRIEF)), [Ok(()), Ok(()), Ok(())]);
        let there = store.get(&key(1)).unwrap();
        assert_eq!(Card::from_text(&there).map(|card| card.pid), Some(8));
    }

    #[test]
    fn a_place_is_kept_by_one_that_lives() {
        let store = store();
        assert_eq!(put(1, 7, &store, BRIEF), Ok(()));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| meeting(1, 7, &store).await_cards(&store, Instant::now() + 4 * SILENCE));
            // Refused once it has seen a sign of life, long before all have come.
            assert_eq!(put(1, 8, &store, SILENCE), taken(7));
            assert_eq!([0, 2].map(|node| put(node, 7, &store, BRIEF)), [Ok(()), Ok(())]);
            assert!(waiting.join().is_ok_and(|cards| cards.is_ok()));
        });
    }

    #[test]
    fn who_was_taken_for_gone_does_not_begin() {
        let store = store();
        assert_eq!([7, 8].map(|pid| put(1, pid, &store, BRIEF)), [Ok(()), Ok(())]);
        assert_eq!([0, 2].map(|node| put(node, 7, &store, BRIEF)), [Ok(()), Ok(())]);
        let read = |pid| {
            let meeting = meeting(1, pid, &store);
            let cards = meeting.await_cards(&store, Instant::now() + SILENCE)?;
            meeting.read(&cards).map(|cards| cards.len())
        };
        assert_eq!((read(8), read(7)), (Ok(3), taken(8).map(|()| 0)));
    }

    #[test]
    fn places_are_kept_once_all_have_come() {
        let store = store();
        assert_eq!([0, 1, 2].map(|node| put(node, 7, &store, BRIEF)), [Ok(()), Ok(()), Ok(())]);
        assert_eq!(put(1, 8, &store, SILENCE), taken(7));
    }

    /// Containers have one process number, and one name where they have their host's.
    #[test]
    fn two_that_look_alike_are_told_apart() {
        let store = store();
        assert_eq!(put(1, 7, &store, BRIEF), Ok(()));
        let mut twin = meeting(1, 7, &store);
        twin.card.mark = 9;
        twin.withdraw();
        assert!(store.check(&[&key(1)]).unwrap());
        assert_eq!([0, 2].map(|node| put(node, 7, &store, BRIEF)), [Ok(()), Ok(())]);
        assert_eq!(twin.put_card(&store, Instant::now() + SILENCE, SILENCE).unwrap(), taken(7));
    }

    #[test]
    fn a_node_that_gives_up_by_itself_leaves_its_place() {
        let store = store();
        let waiting = meeting(1, 7, &store);
        assert_eq!(put(1, 7, &store, BRIEF), Ok(()));
        waiting.part(&store, 1);
        assert!(!store.check(&[&key(1)]).unwrap() && !store.check(&[&heard(1)]).unwrap());
        store.set(OFF, b"no").unwrap();
        waiting.part(&store, 1);
        assert!(store.check(&[&heard(1)]).unwrap());
    }

    #[test]
    fn a_node_that_leaves_gives_up_its_own_place_alone() {
        let store = store();
        assert_eq!(put(1, 7, &store, BRIEF), Ok(()));
        meeting(1, 8, &store).withdraw();
        assert!(store.check(&[&key(1)]).unwrap());
        meeting(1, 7, &store).withdraw();
        assert!(!store.check(&[&key(1)]).unwrap());
        assert_eq!(put(1, 8, &store, SILENCE), Ok(()));
    }

    const BRIEF: Duration = Duration::from_millis(20);
}
