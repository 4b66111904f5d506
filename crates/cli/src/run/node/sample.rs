//! Nodes of three to try things on.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use phalanx_comm::secure::JobName;
use phalanx_comm::store::{LocalStore, StoreAddress};
use phalanx_core::store::{Limits, Store};

use super::card::Card;
use super::meeting::{Meeting, Way};

pub(super) fn store() -> Store {
    Store::new(LocalStore::new(Limits::default()))
}

/// The node that has this process number.
pub(super) fn meeting(node: usize, pid: i32, store: &Store) -> Meeting {
    let mark = 10 * u64::from(pid.unsigned_abs()) + node as u64;
    let card = Card { host: "h".to_owned(), pid, mark, ranks: 1, nodes: 3, restarts: 0, master: None };
    Meeting {
        address: StoreAddress::tcp("127.0.0.1", 1),
        key: None,
        job: JobName::default(),
        insecure: false,
        epoch: 0,
        node,
        card,
        timeout: LONG,
        way: Mutex::new(Way::There(store.clone())),
    }
}

/// What becomes of this node's wish to have its place, of which one that is silent for so long is gone.
pub(super) fn put(node: usize, pid: i32, store: &Store, silence: Duration) -> Result<(), String> {
    meeting(node, pid, store).put_card(store, Instant::now() + LONG, silence).unwrap()
}

/// Lets the nodes meet whose cards are there.
pub(super) fn gather(store: &Store) -> Result<Vec<Card>, String> {
    meeting(0, 7, store).gather(store, Instant::now() + LONG)
}

/// What the others wait for.
pub(super) fn await_met(node: usize, pid: i32, store: &Store) -> Result<Vec<Card>, String> {
    meeting(node, pid, store).await_met(store, Instant::now() + LONG)
}

pub(super) fn taken(pid: i32) -> Result<(), String> {
    Err(format!("--node-rank is 1, which is taken by host h, pid {pid}"))
}

/// Of a node that is taken for gone.
pub(super) const BRIEF: Duration = Duration::from_millis(20);
/// Not in these tests.
pub(super) const LONG: Duration = Duration::from_secs(60);
