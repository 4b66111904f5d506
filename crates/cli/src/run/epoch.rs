//! One epoch of a world on this node: its ranks are started, watched, stopped, swept up after, and what is known of them
//! afterwards is put together.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGKILL};

use super::events::{Events, host};
use super::interrupt::{Interrupt, Wish};
use super::node::Judgement;
use super::output::{Output, Remains};
use super::plan::Plan;
use super::process::exit::Exit;
use super::process::memory::Kills;
use super::process::{descendants, signals};
use super::spawn::Recipe;
use super::verdict::{Fact, State, named, read_reports};
use super::watch::{End, Event, Order, Watch};
use crate::condition;
use crate::failure::tell;

/// What an epoch came to on this node.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What is known of the ranks that were started.
    pub(super) facts: Vec<Fact>,
    /// Why not all ranks could be started.
    pub(super) unable: Option<String>,
    /// The signal that asked the launcher to end.
    pub(super) interrupt: Interrupt,
    /// Whether ranks had to be killed.
    pub(super) was_killed: bool,
    pub(super) took: Duration,
    /// What was decided elsewhere meanwhile.
    pub(super) judged: Option<Result<Judgement, String>>,
}

/// Runs one epoch to its end. No process of it is left when this returns. `alarm` is called once there is trouble here, with
/// the signal that asked for the end, if one did.
pub(super) fn run(
    plan: &Plan,
    recipe: &Recipe,
    events: &Events,
    grace: Duration,
    alarm: &dyn Fn(Option<i32>),
) -> Outcome {
    let mut epoch = Epoch::new(plan, grace);
    match epoch.start(plan, recipe, events) {
        Ok(()) => epoch.supervise(events, alarm),
        Err(why) => epoch.unable = Some(why),
    }
    epoch.sweep();
    epoch.drain(events, grace);
    epoch.outcome(plan, recipe)
}

struct Epoch {
    began: Instant,
    first_rank: usize,
    /// Counts of the kernel before the epoch.
    kills: Kills,
    pids: Vec<Pid>,
    unable: Option<String>,
    memory: Vec<Option<String>>,
    /// The ranks that a signal had halted when the first failed.
    halted: Vec<usize>,
    watch: Watch,
    output: Option<Output>,
    remains: Vec<Remains>,
    judged: Option<Result<Judgement, String>>,
}

impl Epoch {
    fn new(plan: &Plan, grace: Duration) -> Epoch {
        Epoch {
            began: Instant::now(),
            first_rank: plan.first_rank,
            kills: Kills::now(),
            pids: vec![],
            unable: None,
            memory: vec![None; plan.local_ranks],
            halted: vec![],
            watch: Watch::new(plan.local_ranks, grace),
            output: None,
            remains: vec![Remains::default(); plan.local_ranks],
            judged: None,
        }
    }

    /// Starts the ranks and what moves their output. Says in a line why not.
    fn start(&mut self, plan: &Plan, recipe: &Recipe, events: &Events) -> Result<(), String> {
        let unable = |rank: usize, error: std::io::Error| format!("rank {rank} could not be started: {error}");
        let mut sources = vec![];
        for local_rank in 0..plan.local_ranks {
            let started = recipe.start(plan, local_rank).map_err(|error| unable(plan.rank(local_rank), error))?;
            self.pids.push(started.pid);
            sources.extend(started.sources);
        }
        let output = Output::start(sources, plan.local_ranks, events.sender.clone());
        self.output = Some(output.map_err(|error| unable(plan.first_rank, error))?);
        Ok(())
    }

    /// Passes time and signals on until all ranks have ended.
    fn supervise(&mut self, events: &Events, alarm: &dyn Fn(Option<i32>)) {
        let mut was_troubled = false;
        while !self.watch.is_over() {
            let event = events.next(self.watch.deadline());
            let now = Instant::now();
            let order = self.take(event, now).or_else(|| self.watch.tick(now));
            if self.watch.is_troubled() && !was_troubled {
                was_troubled = true;
                let is_halted =
                    |pid: Pid| condition::state(pid.as_raw_pid().unsigned_abs()) == Some(condition::STOPPED);
                self.halted = self.running().filter(|rank| is_halted(self.pids[*rank])).collect();
                alarm(self.watch.interrupt().signal());
            }
            if let Some(Order(signal)) = order {
                self.send(signal);
            }
        }
    }

    /// What an event asks for.
    fn take(&mut self, event: Option<Event>, now: Instant) -> Option<Order> {
        match event? {
            Event::Signal(SIGCHLD) => self.reap(now),
            Event::Orphaned => {
                self.reap(now);
                return self.watch.abandon(now);
            }
            Event::Signal(signal) => return self.watch.signal(signal, now),
            Event::Elsewhere(_) => self.watch.elsewhere(now),
            Event::Drained(remains) => self.remains = remains,
            Event::Judged(_, judged) => {
                self.judged = Some(judged);
                self.watch.elsewhere(now);
            }
            Event::Met(_) => {}
        }
        None
    }

    /// Takes note of every child that has ended: ranks, and orphans that became ours.
    fn reap(&mut self, now: Instant) {
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
    }

    /// Sends a signal to every rank that runs and to what it started in its group.
    fn send(&self, signal: i32) {
        match signals::is_free(signal) {
            true => self.send_free(signal),
            false => self.running().for_each(|rank| {
                signals::send_group(self.pids[rank], signal);
                // What is halted hears nothing else until it goes on.
                signals::send_group(self.pids[rank], SIGCONT);
            }),
        }
    }

    fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.pids.len()).filter(|local_rank| self.watch.ended(*local_rank).is_none())
    }

    /// Sends a signal that is a program's own to the ranks that take it. It would end those that do not, and so it would what
    /// they started.
    fn send_free(&self, signal: i32) {
        let (due, spared): (Vec<usize>, Vec<usize>) =
            self.running().partition(|rank| signals::is_taken(self.pids[*rank], signal));
        due.into_iter().for_each(|rank| signals::send(self.pids[rank], signal));
        if !spared.is_empty() {
            let numbers: Vec<usize> = spared.iter().map(|rank| self.first_rank + rank).collect();
            let (name, spared) = (signals::name(signal), named(&numbers));
            tell(&format!("{name} was not passed on to {spared}: without a handler it would end there"));
        }
    }

    fn sweep(&self) {
        match descendants::sweep(HashSet::new()) {
            Ok(0) => {}
            Ok(ended) => log::info!("{ended} processes that the ranks had left were ended"),
            Err(left) => log::error!("{} processes could not be ended: {left:?}", left.len()),
        }
    }

    /// Waits until all output was passed on, or somebody has had enough of waiting. It is what the ranks said last, and evidence: who
    /// asks for the end, now or before, leaves it the grace that running ranks would have.
    fn drain(&mut self, events: &Events, grace: Duration) {
        if self.output.take().is_none() {
            return;
        }
        let mut deadline = self.watch.interrupt().signal().map(|_| Instant::now() + grace);
        while let Some(event) = events.next(deadline) {
            match event {
                Event::Drained(remains) => {
                    self.remains = remains;
                    return;
                }
                // Nothing runs any more that it could be sent to.
                Event::Signal(signal) if signals::is_ending(signal) => {
                    let now = Instant::now();
                    match self.watch.hear(signal, now) {
                        Wish::First => deadline = Some(now + grace),
                        Wish::Same => {}
                        Wish::Again => return,
                    }
                }
                Event::Judged(_, judged) => self.judged = Some(judged),
                Event::Orphaned => return,
                _ => {}
            }
        }
    }

    fn outcome(self, plan: &Plan, recipe: &Recipe) -> Outcome {
        let host = host();
        let facts = (0..self.pids.len()).map(|local_rank| self.fact(plan, recipe, local_rank, &host)).collect();
        Outcome {
            facts,
            unable: self.unable,
            interrupt: self.watch.interrupt(),
            was_killed: self.watch.was_killed(),
            took: self.began.elapsed(),
            judged: self.judged,
        }
    }

    fn fact(&self, plan: &Plan, recipe: &Recipe, local_rank: usize, host: &str) -> Fact {
        let end = self.watch.ended(local_rank);
        let state = match end {
            Some(End { exit, was_stopped: false, .. }) => State::Ended(exit),
            _ if self.halted.contains(&local_rank) => State::Halted,
            end => State::Stopped(end.map(|end| end.exit)),
        };
        let (report, accusation) = read_reports(&plan.report(local_rank), &plan.own_report(local_rank));
        Fact {
            rank: plan.rank(local_rank),
            pid: self.pids[local_rank].as_raw_pid(),
            host: host.to_owned(),
            state,
            after: end.map_or_else(|| self.began.elapsed(), |end| end.at.duration_since(self.began)),
            report,
            accusation,
            remains: self.remains[local_rank].clone(),
            memory: self.memory[local_rank].clone(),
            log: recipe.log(plan, local_rank),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::process::getppid;
    use signal_hook::consts::{SIGINT, SIGTERM};

    use super::*;
    use crate::run::interrupt::AT_ONCE;

    const LONG: Duration = Duration::from_secs(1000);

    /// An epoch whose one rank has ended, and what its launcher hears meanwhile. Its output never comes by itself.
    fn swept(heard: Vec<Event>) -> (Epoch, Events) {
        let (events, elsewhere) = (Events::new(getppid()), Events::new(getppid()));
        heard.into_iter().for_each(|event| events.sender.send(event).unwrap());
        let mut watch = Watch::new(1, LONG);
        watch.end(0, Exit::Code(3), Instant::now());
        let epoch = Epoch {
            began: Instant::now(),
            first_rank: 0,
            kills: Kills::default(),
            pids: vec![],
            unable: None,
            memory: vec![None],
            halted: vec![],
            watch,
            output: Some(Output::start(vec![], 1, elsewhere.sender).unwrap()),
            remains: vec![Remains::default()],
            judged: None,
        };
        (epoch, events)
    }

    fn last_words() -> Vec<Remains> {
        vec![Remains { tail: vec!["last words".to_owned()], panic: None }]
    }

    #[test]
    fn what_ranks_said_last_is_kept_though_a_signal_comes_before_it() {
        let (mut epoch, events) =
            swept(vec![Event::Signal(SIGTERM), Event::Signal(SIGINT), Event::Drained(last_words())]);
        epoch.drain(&events, LONG);
        assert_eq!((epoch.remains, epoch.watch.interrupt().signal()), (last_words(), Some(SIGTERM)));
    }

    #[test]
    fn after_a_signal_output_is_awaited_for_the_grace_alone() {
        let (mut epoch, events) = swept(vec![Event::Signal(SIGTERM)]);
        epoch.drain(&events, Duration::ZERO);
        assert_eq!(epoch.remains, [Remains::default()]);
    }

    #[test]
    fn output_is_awaited_for_the_grace_alone_where_the_end_was_asked_for_before() {
        let (mut epoch, events) = swept(vec![]);
        epoch.watch.hear(SIGTERM, Instant::now());
        let late = events.sender.clone();
        thread::spawn(move || {
            thread::sleep(Duration::from_secs(30));
            late.send(Event::Drained(last_words()))
        });
        epoch.drain(&events, Duration::ZERO);
        assert_eq!(epoch.remains, [Remains::default()]);
    }

    #[test]
    fn who_asks_again_does_not_wait_for_output() {
        let (mut epoch, events) = swept(vec![Event::Signal(SIGINT), Event::Drained(last_words())]);
        epoch.watch.hear(SIGINT, Instant::now().checked_sub(AT_ONCE).unwrap());
        epoch.drain(&events, LONG);
        assert_eq!(epoch.remains, [Remains::default()]);
    }
}
