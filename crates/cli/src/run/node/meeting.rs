//! How nodes come together before an epoch: each puts its card into the store and reads those of all.

use std::thread;
use std::time::{Duration, Instant};

use phalanx_comm::secure::{Claim, JobKey, JobName, Session};
use phalanx_comm::store::{ClientOptions, StoreAddress, TcpStore};
use phalanx_core::store::{Store, StoreError};

use super::card::Card;
use crate::key;

/// Where and as whom a node meets the others.
#[derive(Clone, Debug)]
pub(crate) struct Meeting {
    pub(crate) address: StoreAddress,
    pub(crate) key: Option<JobKey>,
    pub(crate) job: JobName,
    pub(crate) insecure: bool,
    pub(crate) epoch: u32,
    pub(crate) node: usize,
    pub(crate) card: Card,
    pub(crate) timeout: Duration,
}

/// The store of the launchers in this epoch, and the cards of all nodes. Says in a line why not.
pub(crate) fn meet(meeting: &Meeting) -> Result<(Store, Vec<Card>), String> {
    let deadline = Instant::now() + meeting.timeout;
    let store = meeting.connect(deadline).map_err(|error| key::name_flags(&error.to_string()))?;
    let store = store.scope("launcher").scope(&meeting.epoch.to_string());
    meeting.put_card(&store, deadline).map_err(|error| error.to_string())??;
    let cards = meeting.await_cards(&store, deadline).and_then(|cards| meeting.read(&cards));
    if let (0, Err(why)) = (meeting.node, &cards) {
        meeting.call_off(&store, why);
    }
    cards.map(|cards| (store, cards))
}

impl Meeting {
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

    /// Takes this node's place, unless another has it. Asking twice does no harm: the card is this node's own.
    fn put_card(&self, store: &Store, deadline: Instant) -> Result<Result<(), String>, StoreError> {
        let mine = self.card.to_text();
        let there = loop {
            match store.compare_set(&key(self.node), "", &mine) {
                Ok(there) => break there,
                Err(StoreError::Timeout { .. } | StoreError::Lost { .. }) if Instant::now() < deadline => {}
                Err(error) => return Err(error),
            }
        };
        if there == mine.as_bytes() {
            return Ok(Ok(()));
        }
        let other = Card::from_text(&there)
            .map_or_else(|| "another".to_owned(), |card| format!("host {}, pid {}", card.host, card.pid));
        Ok(Err(format!("--node-rank is {}, which is taken by {other}", self.node)))
    }

    /// Waits for the cards of all nodes, or until node 0 has given up.
    fn await_cards(&self, store: &Store, deadline: Instant) -> Result<Vec<Vec<u8>>, String> {
        let keys: Vec<String> = (0..self.card.nodes).map(key).collect();
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let look = store.with_timeout(left.min(LOOK));
            match look.multi_get(&names) {
                Ok(cards) => return Ok(cards),
                Err(StoreError::Timeout { .. } | StoreError::Lost { .. }) if left > LOOK => {}
                Err(error) => return Err(self.missing(store, &error)),
            }
            if let Ok(Some(why)) = look.find(OFF) {
                let _ = store.set(&heard(self.node), b"");
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
            match card.nodes == self.card.nodes {
                true => Ok(card),
                false => {
                    let (own, here) = (self.card.nodes, self.node);
                    Err(format!("--nnodes is {own} on node {here} and {} on node {node}", card.nodes))
                }
            }
        });
        cards.collect()
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
/// How long node 0 waits until the others have looked.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long one call to the store may take, unless it waits for something.
const CALL: Duration = Duration::from_secs(5);
