//! One epoch of a world on this node: its ranks are started, watched, stopped, swept up after, and what is known of them
//! afterwards is put together.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rustix::process::{Pid, getppid};
use signal_hook::consts::{SIGCHLD, SIGKILL};

use super::output::{Output, Remains};
use super::plan::Plan;
use super::process::exit::Exit;
use super::process::memory::Kills;
use super::process::{descendants, signals};
use super::spawn::Recipe;
use super::verdict::{Fact, Report, State};
use super::watch::{End, Event, Watch};
use crate::failure::Failure;

/// What wakes the launcher, and who may do so.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) sender: Sender<Event>,
    pub(super) receiver: Receiver<Event>,
    /// The guard: once it is gone, nobody is left to work for.
    pub(super) guard: Option<Pid>,
}

/// What an epoch came to on this node.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) facts: Vec<Fact>,
    /// The signal that asked the launcher to end.
    pub(super) interrupt: Option<i32>,
    /// Whether ranks had to be killed.
    pub(super) was_killed: bool,
    pub(super) took: Duration,
}

/// Runs one epoch to its end. No process of it is left when this returns.
pub(super) fn run(plan: &Plan, recipe: &Recipe, events: &Events, grace: Duration) -> Result<Outcome, Failure> {
    let mut epoch = Epoch::start(plan, recipe, events, grace)?;
    epoch.supervise(events);
    epoch.sweep();
    epoch.drain(events);
    Ok(epoch.outcome(plan, recipe))
}

struct Epoch {
    began: Instant,
    /// Counts of the kernel before the epoch.
    kills: Kills,
    pids: Vec<Pid>,
    memory: Vec<Option<String>>,
    watch: Watch,
    output: Option<Output>,
    remains: Vec<Remains>,
}

impl Epoch {
    fn start(plan: &Plan, recipe: &Recipe, events: &Events, grace: Duration) -> Result<Epoch, Failure> {
        let mut epoch = Epoch {
            began: Instant::now(),
            kills: Kills::now(),
            pids: vec![],
            memory: vec![None; plan.local_ranks],
            watch: Watch::new(plan.local_ranks, grace),
            output: None,
            remains: vec![Remains::default(); plan.local_ranks],
        };
        let mut sources = vec![];
        for local_rank in 0..plan.local_ranks {
            let started =
                recipe.start(plan, local_rank).map_err(|error| epoch.give_up(plan.rank(local_rank), error))?;
            epoch.pids.push(started.pid);
            sources.extend(started.sources);
        }
        let output = Output::start(sources, plan.local_ranks, events.sender.clone());
        epoch.output = Some(output.map_err(|error| epoch.give_up(plan.first_rank, error))?);
        Ok(epoch)
    }

    /// Ends what was started when not all could be.
    fn give_up(&self, rank: usize, error: std::io::Error) -> Failure {
        self.sweep();
        Failure::Stopped(format!("rank {rank} could not be started: {error}"))
    }

    /// Passes time and signals on until all ranks have ended.
    fn supervise(&mut self, events: &Events) {
        while !self.watch.is_over() {
            let event = match self.watch.deadline() {
                Some(deadline) => events.receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())),
                None => events.receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let now = Instant::now();
            let order = match event {
                Ok(Event::Signal(SIGCHLD)) => self.reap(now),
                Ok(Event::Signal(_)) | Err(RecvTimeoutError::Disconnected) if events.guard != getppid() => {
                    Some(self.watch.abandon(now))
                }
                Ok(Event::Signal(signal)) => self.watch.signal(signal, now),
                Ok(Event::Drained(remains)) => self.keep(remains),
                Err(_) => None,
            };
            let order = order.or_else(|| self.watch.tick(now));
            if let Some(super::watch::Send(signal)) = order {
                self.send(signal);
            }
        }
    }

    /// Takes note of every child that has ended: ranks, and orphans that became ours.
    fn reap(&mut self, now: Instant) -> Option<super::watch::Send> {
        while let Some((pid, exit)) = descendants::reap() {
            let Some(local_rank) = self.pids.iter().position(|rank| *rank == pid) else {
                continue;
            };
            if self.watch.ended(local_rank).is_none() {
                self.watch.end(local_rank, exit, now);
                let is_stopped = self.watch.ended(local_rank).is_some_and(|end| end.was_stopped);
                if exit == Exit::Signal(SIGKILL) && !is_stopped {
                    self.memory[local_rank] = self.kills.rose(Kills::now());
                }
            }
        }
        None
    }

    /// Sends a signal to every rank that runs and to what it started in its group.
    fn send(&self, signal: i32) {
        let running = |local_rank: &usize| self.watch.ended(*local_rank).is_none();
        (0..self.pids.len()).filter(running).for_each(|rank| signals::send_group(self.pids[rank], signal));
    }

    fn sweep(&self) {
        match descendants::sweep(PATIENCE) {
            Ok(0) => {}
            Ok(ended) => log::info!("{ended} processes that the ranks had left were ended"),
            Err(left) => log::error!("{} processes could not be ended: {left:?}", left.len()),
        }
    }

    /// Waits until all output was passed on, or somebody has had enough of waiting.
    fn drain(&mut self, events: &Events) {
        self.output = None;
        while let Ok(event) = events.receiver.recv() {
            match event {
                Event::Drained(remains) => {
                    self.keep(remains);
                    return;
                }
                Event::Signal(signal) if signals::is_ending(signal) => return self.note(signal),
                Event::Signal(_) => {}
            }
        }
    }

    fn note(&mut self, signal: i32) {
        // Nothing runs any more that it could be sent to.
        let _ = self.watch.signal(signal, Instant::now());
    }

    fn keep(&mut self, remains: Vec<Remains>) -> Option<super::watch::Send> {
        self.remains = remains;
        None
    }

    fn outcome(self, plan: &Plan, recipe: &Recipe) -> Outcome {
        let host = host();
        let fact = |local_rank: usize| self.fact(plan, recipe, local_rank, &host);
        Outcome {
            facts: (0..plan.local_ranks).map(fact).collect(),
            interrupt: self.watch.interrupt(),
            was_killed: self.watch.was_killed(),
            took: self.began.elapsed(),
        }
    }

    fn fact(&self, plan: &Plan, recipe: &Recipe, local_rank: usize, host: &str) -> Fact {
        let end = self.watch.ended(local_rank);
        let state = match end {
            Some(End { exit, was_stopped: false, .. }) => State::Ended(exit),
            _ => State::Stopped,
        };
        Fact {
            rank: plan.rank(local_rank),
            pid: self.pids[local_rank].as_raw_pid(),
            host: host.to_owned(),
            state,
            after: end.map_or_else(|| self.began.elapsed(), |end| end.at.duration_since(self.began)),
            report: Report::read(&plan.report(local_rank)),
            remains: self.remains[local_rank].clone(),
            memory: self.memory[local_rank].clone(),
            log: recipe.log(plan, local_rank),
        }
    }
}

/// The name of this machine.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// How long the kernel may take to end what was killed.
const PATIENCE: Duration = Duration::from_secs(10);
