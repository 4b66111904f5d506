//! How nodes come together before an epoch: each puts its card into the store and reads those of all.

use std::thread;
use std::time::{Duration, Instant};

use phalanx_comm::secure::{Claim, JobKey, JobName, Session};
use phalanx_comm::store::{ClientOptions, StoreAddress, TcpStore};
use phalanx_core::store::{Store, StoreError};

use super::card::Card;

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
    let store = meeting.connect(deadline).map_err(|error| error.to_string())?;
    let store = store.scope("launcher").scope(&meeting.epoch.to_string());
    meeting.put_card(&store, deadline).map_err(|error| error.to_string())??;
    let keys: Vec<String> = (0..meeting.card.nodes).map(key).collect();
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    let left = deadline.saturating_duration_since(Instant::now());
    let cards = store.with_timeout(left).multi_get(&names);
    let cards = cards.map_err(|error| meeting.missing(&store, &error))?;
    meeting.read(&cards).map(|cards| (store, cards))
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
                false => Err(format!("--nnodes is {} here and {} on node {node}", self.card.nodes, card.nodes)),
            }
        });
        cards.collect()
    }
}

fn key(node: usize) -> String {
    format!("node/{node}")
}

/// How long one call to the store may take, unless it waits for something.
const CALL: Duration = Duration::from_secs(5);
