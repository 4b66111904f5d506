//! What a launcher does in the store while an epoch runs: it shows that it lives, listens for trouble elsewhere, and hands
//! in its account at the end.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::store::{Store, StoreError};

use super::judgement::{Account, Judgement};
use crate::run::watch::Event;

/// The agent of a node in one epoch. Dropping it ends its signs of life.
#[derive(Debug)]
pub(crate) struct Agent {
    tasks: Sender<Task>,
}

#[derive(Debug)]
enum Task {
    /// Tells all nodes to stop, and why.
    Cry(String),
    HandIn(String),
}

impl Agent {
    /// Begins to show signs of life and to listen. What is heard arrives as events; the judgement too, except at node 0,
    /// where it comes from.
    pub(crate) fn start(store: &Store, epoch: u32, node: usize, events: &Sender<Event>) -> std::io::Result<Agent> {
        let (tasks, received) = mpsc::channel();
        let (at_work, told) = (store.clone(), events.clone());
        named("phalanx-agent").spawn(move || {
            if let Err(error) = work(&at_work, node, &received) {
                // Nobody listens any more once the launcher is at its end.
                let _ = told.send(Event::Judged(epoch, Err(error.to_string())));
            }
        })?;
        let (store, events) = (store.clone(), events.clone());
        named("phalanx-listener").spawn(move || listen(&store, epoch, node, &events))?;
        Ok(Agent { tasks })
    }

    /// Tells all nodes to stop.
    pub(crate) fn cry(&self, why: &str) {
        // An agent that has ended has told that the store is gone.
        let _ = self.tasks.send(Task::Cry(why.to_owned()));
    }

    /// Hands in what is known of this node's ranks.
    pub(crate) fn hand_in(&self, account: &Account) {
        let _ = self.tasks.send(Task::HandIn(account.to_text()));
    }
}

/// The key where a node hands in its account.
pub(super) fn account_key(node: usize) -> String {
    format!("account/{node}")
}

/// The counter by which a node shows that it lives.
pub(super) fn life_key(node: usize) -> String {
    format!("alive/{node}")
}

pub(super) fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.to_owned())
}

/// Waits for `key` for as long as the store answers.
pub(super) fn await_key(store: &Store, key: &str) -> Result<Vec<u8>, StoreError> {
    let patient = store.with_timeout(LISTEN);
    loop {
        match patient.get(key) {
            Err(error) if error.is_timeout() => {}
            other => return other,
        }
    }
}

/// Everybody who was told comes here before the store goes on to the next epoch, or away.
pub(super) fn part(store: &Store, nodes: usize) {
    if let Err(error) = store.with_timeout(PARTING).barrier(PART, nodes) {
        log::debug!("not all nodes were heard to part: {error}");
    }
}

impl Task {
    /// Does it; doing it twice does no harm.
    fn perform(&self, store: &Store, node: usize) -> Result<(), StoreError> {
        match self {
            Task::Cry(why) => store.compare_set(OVER, "", why).map(drop),
            Task::HandIn(account) => store.set(&account_key(node), account),
        }
    }
}

/// Does what is asked, and shows in between that the launcher lives. A store that fails for too long is gone.
fn work(store: &Store, node: usize, tasks: &Receiver<Task>) -> Result<(), StoreError> {
    let life = life_key(node);
    let mut answered = Instant::now();
    let mut undone = VecDeque::new();
    loop {
        match tasks.recv_timeout(BEAT) {
            Ok(task) => undone.push_back(task),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        match perform(&mut undone, store, node).and_then(|()| store.add(&life, 1)) {
            Ok(_) => answered = Instant::now(),
            Err(error @ StoreError::Denied { .. }) => return Err(error),
            Err(error) if answered.elapsed() > SILENCE => return Err(error),
            Err(error) => log::info!("{error}"),
        }
    }
}

/// Does what is to be done, as far as the store answers.
fn perform(undone: &mut VecDeque<Task>, store: &Store, node: usize) -> Result<(), StoreError> {
    while let Some(task) = undone.front() {
        task.perform(store, node)?;
        undone.pop_front();
    }
    Ok(())
}

fn listen(store: &Store, epoch: u32, node: usize, events: &Sender<Event>) {
    let heard = await_key(store, OVER).map(|_| drop(events.send(Event::Elsewhere(epoch))));
    if node == 0 {
        return;
    }
    let judged = match heard.and_then(|()| await_key(store, JUDGEMENT)) {
        Ok(text) => {
            let nodes = store.find(NODES).ok().flatten().and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok());
            part(store, nodes.unwrap_or(1));
            Judgement::from_text(&text).ok_or_else(|| "node 0 speaks another version of this program".to_owned())
        }
        Err(error) => Err(error.to_string()),
    };
    let _ = events.send(Event::Judged(epoch, judged));
}

/// Set once anybody is in trouble, or all is over.
pub(super) const OVER: &str = "over";
pub(super) const JUDGEMENT: &str = "judgement";
/// How many nodes hear the judgement.
pub(super) const NODES: &str = "nodes";
const PART: &str = "part";

/// How often a launcher shows that it lives.
const BEAT: Duration = Duration::from_millis(500);

/// After how long without a sign of life a launcher, or the store, is given up.
pub(super) const SILENCE: Duration = Duration::from_secs(5);

const LISTEN: Duration = Duration::from_secs(30);
const PARTING: Duration = Duration::from_secs(5);
