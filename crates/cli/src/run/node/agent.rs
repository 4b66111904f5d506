//! What a launcher does in the store while an epoch runs: it shows that it lives, listens for trouble elsewhere, and hands
//! in its account at the end.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use phalanx_core::store::{Store, StoreError};

use super::judgement::{Account, Cry, Judgement};
use crate::run::watch::Event;

/// The agent of a node in one epoch. Dropping it ends its signs of life.
#[derive(Debug)]
pub(crate) struct Agent {
    store: Store,
    tasks: Sender<Task>,
    threads: [JoinHandle<()>; 2],
}

/// What was said, on its way to the store.
#[derive(Debug)]
pub(crate) struct Said(Receiver<()>);

impl Said {
    /// Waits until it stands there, but not for a store that is slow to answer.
    pub(crate) fn wait(self) {
        let _ = self.0.recv_timeout(HEARD);
    }
}

#[derive(Debug)]
enum Task {
    /// Tells all nodes to stop, and why; whoever waits for that hears that it is done.
    Cry(Cry, Sender<()>),
    HandIn(String),
}

impl Agent {
    /// Begins to show signs of life and to listen. What is heard arrives as events; the judgement too, except at node 0,
    /// where it comes from.
    pub(crate) fn start(store: &Store, epoch: u32, node: usize, events: &Sender<Event>) -> std::io::Result<Agent> {
        let (tasks, received) = mpsc::channel();
        let (at_work, told) = (store.clone(), events.clone());
        let work = named("phalanx-agent").spawn(move || {
            if let Err(error) = work(&at_work, node, &received) {
                // Nobody listens any more once the launcher is at its end.
                let _ = told.send(Event::Judged(epoch, Err(error.to_string())));
            }
        })?;
        let (listening, events) = (store.clone(), events.clone());
        let listen = named("phalanx-listener").spawn(move || listen(&listening, epoch, node, &events))?;
        Ok(Agent { store: store.clone(), tasks, threads: [work, listen] })
    }

    /// Asks nothing more of this epoch's store, once the judgement was heard. Other nodes than the first then wait until it
    /// has gone on to the next epoch, or away: it sends everybody off, and whoever comes earlier is turned away.
    pub(crate) fn part(self, node: usize) {
        drop(self.tasks);
        // Both end by themselves now, at the latest when their calls to the store do.
        self.threads.into_iter().for_each(|thread| drop(thread.join()));
        if node > 0 {
            let sent_off = self.store.with_timeout(PARTING).barrier(PARTED, usize::MAX);
            log::debug!("parted: {sent_off:?}");
        }
    }

    /// Tells all nodes to stop.
    pub(crate) fn cry(&self, cry: Cry) -> Said {
        let (done, said) = mpsc::channel();
        // An agent that has ended has told that the store is gone.
        let _ = self.tasks.send(Task::Cry(cry, done));
        Said(said)
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
fn await_key(store: &Store, key: &str) -> Result<Vec<u8>, StoreError> {
    let patient = store.with_timeout(LISTEN);
    let mut patience = Patience::new();
    loop {
        if let Some(value) = patience.judge(patient.get(key))? {
            return Ok(value);
        }
    }
}

/// How long a store may fail before it is given up. A machine that is busy is slow to let anybody in.
#[derive(Debug)]
pub(super) struct Patience {
    failing: Option<Instant>,
}

impl Patience {
    pub(super) fn new() -> Patience {
        Patience { failing: None }
    }

    /// The answer, or none if it is to be asked again. That nothing came in time is an answer here.
    pub(super) fn judge<T>(&mut self, answer: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        let error = match answer {
            Ok(answer) => {
                self.failing = None;
                return Ok(Some(answer));
            }
            Err(error) if error.is_timeout() => {
                self.failing = None;
                return Ok(None);
            }
            Err(error) => error,
        };
        if self.failing.get_or_insert_with(Instant::now).elapsed() > GIVEN_UP {
            return Err(error);
        }
        log::info!("{error}");
        thread::sleep(PAUSE);
        Ok(None)
    }
}

/// Waits until `nodes` have heard the judgement and ask nothing more, or until they had long enough.
pub(super) fn await_parting(store: &Store, nodes: usize) {
    let (deadline, mut pause) = (Instant::now() + PARTING, Duration::from_millis(1));
    let number = |count: Vec<u8>| std::str::from_utf8(&count).ok()?.parse::<usize>().ok();
    let has_all = || store.find(PARTED).is_ok_and(|count| count.and_then(number).is_some_and(|count| count >= nodes));
    // A store tells nobody that a counter has risen.
    while nodes > 0 && Instant::now() < deadline && !has_all() {
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

impl Task {
    /// Does it; doing it twice does no harm.
    fn perform(&self, store: &Store, node: usize) -> Result<(), StoreError> {
        match self {
            Task::Cry(cry, done) => {
                cry_out(store, cry)?;
                // Mostly nobody waits for that.
                let _ = done.send(());
                Ok(())
            }
            Task::HandIn(account) => store.set(&account_key(node), account),
        }
    }
}

/// The first to cry is heard, except that what is final goes before what is not.
pub(super) fn cry_out(store: &Store, cry: &Cry) -> Result<(), StoreError> {
    let there = store.compare_set(OVER, "", Cry { is_first: true, ..cry.clone() }.to_text())?;
    if cry.is_final && Cry::from_text(&there).is_some_and(|there| !there.is_final) {
        store.compare_set(OVER, &there, Cry { is_first: false, ..cry.clone() }.to_text())?;
    }
    Ok(())
}

/// Does what is asked, and shows in between that the launcher lives. A store that fails for too long is gone.
fn work(store: &Store, node: usize, tasks: &Receiver<Task>) -> Result<(), StoreError> {
    let (life, brief) = (life_key(node), store.with_timeout(SIGN));
    let mut answered = Instant::now();
    let mut undone = VecDeque::new();
    loop {
        match tasks.recv_timeout(BEAT) {
            Ok(task) => undone.push_back(task),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        // A store that refuses what is to be done must not have this node believed dead.
        let shown = brief.add(&life, 1);
        match shown.and(perform(&mut undone, store, node)) {
            Ok(()) => answered = Instant::now(),
            // Here a silent store is one that fails.
            Err(error) if answered.elapsed() > GIVEN_UP => return Err(error),
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
            Judgement::from_text(&text).ok_or_else(|| "node 0 speaks another version of this program".to_owned())
        }
        Err(error) => Err(error.to_string()),
    };
    let _ = events.send(Event::Judged(epoch, judged));
}

/// Set once anybody is in trouble, or all is over.
pub(super) const OVER: &str = "over";
pub(super) const JUDGEMENT: &str = "judgement";
/// Counts the nodes that ask nothing more.
const PARTED: &str = "parted";

/// How often a launcher shows that it lives.
const BEAT: Duration = Duration::from_millis(500);

/// After how long without a sign of life a launcher is given up.
pub(super) const SILENCE: Duration = Duration::from_secs(5);

/// After how long without an answer the store is given up.
const GIVEN_UP: Duration = Duration::from_secs(8);

/// How long one sign of life may take.
const SIGN: Duration = Duration::from_secs(2);

/// How long ranks that are to end go on so that all hear why first.
const HEARD: Duration = Duration::from_millis(500);

const PAUSE: Duration = Duration::from_millis(50);
const LISTEN: Duration = Duration::from_secs(10);
const PARTING: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use phalanx_comm::store::LocalStore;
    use phalanx_core::store::Limits;

    use super::*;

    #[test]
    fn a_node_whose_account_is_refused_is_seen_to_live() {
        let store = Store::new(LocalStore::new(Limits::default().value(8)));
        let (events, _heard) = mpsc::channel();
        let agent = Agent::start(&store, 0, 0, &events).unwrap();
        agent.hand_in(&Account { facts: vec![] });
        assert!(store.with_timeout(Duration::from_secs(60)).get(&life_key(0)).is_ok());
        // Ends what listens.
        store.set(OVER, "x").unwrap();
        agent.part(0);
    }
}
