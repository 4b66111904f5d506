//! With whom a launcher runs an epoch: alone, or among those of other nodes. It gathers before and judges after.

use std::collections::BTreeMap;
use std::process;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use phalanx_comm::store::StoreAddress;

use super::Options;
use super::epoch::Outcome;
use super::events::{Events, ORPHANED, host};
use super::interrupt::Wish;
use super::node::{Account, Agent, Card, Court, Cry, Judgement, Meeting, Met, decide, meet};
use super::process::signals;
use super::stores::{Master, Stores};
use super::verdict::{Verdict, judge};
use super::watch::Event;
use crate::failure::{Failure, tell};

/// The launchers of an epoch.
#[derive(Debug)]
pub(super) enum Company {
    Alone,
    Nodes(Agent),
}

/// Where this node's ranks stand in the world.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) first_rank: usize,
    pub(super) ranks: usize,
    pub(super) master: Master,
}

impl Company {
    /// Comes together for an epoch. `master` is where PyTorch's ranks meet, as node 0 knows it.
    pub(super) fn gather(
        options: &Options,
        stores: &Stores,
        epoch: u32,
        master: Option<Master>,
        events: &Events,
    ) -> Result<(Company, Place), Failure> {
        let ranks = options.local_ranks();
        if let (1, Some(master)) = (options.nodes(), &master) {
            let master = master.seen_from(0, stores.address());
            return Ok((Company::Alone, Place { first_rank: 0, ranks, master }));
        }
        let pid = i32::try_from(process::id()).unwrap_or_default();
        let (nodes, restarts) = (options.nodes(), options.max_restarts);
        let card = Card { host: host(), pid, mark: fastrand::u64(..), ranks, nodes, restarts, master };
        let meeting = Meeting {
            address: stores.address().clone(),
            key: stores.key().cloned(),
            job: stores.job().clone(),
            insecure: options.insecure,
            epoch,
            node: options.node(),
            card,
            timeout: options.join_timeout,
            way: Mutex::default(),
        };
        let failed = |error: std::io::Error| Failure::Stopped(format!("thread: {error}"));
        let (store, cards) = await_meeting(meeting, events)?;
        let place = place(&cards, options.node(), stores.address())?;
        let agent = Agent::start(&store, epoch, options.node(), &events.sender).map_err(failed)?;
        if options.node() == 0 {
            Court::start(&store, cards, epoch, options.max_restarts, &events.sender).map_err(failed)?;
        }
        Ok((Company::Nodes(agent), place))
    }

    /// Tells the others that there is trouble here, which may be a signal that asks for the end. Where this node leaves for
    /// good, they know it before its ranks end, of which theirs fail.
    pub(super) fn cry(&self, node: usize, interrupt: Option<i32>, events: &Events) {
        let Company::Nodes(agent) = self else { return };
        match farewell(node, (None, interrupt), events) {
            Some(cry) => agent.cry(cry).wait(),
            None => drop(agent.cry(Cry::new(format!("there was trouble on node {node} (host {})", host()), false))),
        }
    }

    /// The judgement on an epoch that is over here; among nodes that is once it is over everywhere.
    pub(super) fn judge(self, options: &Options, epoch: u32, outcome: &mut Outcome, events: &Events) -> Judgement {
        let Company::Nodes(agent) = self else {
            return alone(options, epoch, outcome);
        };
        part(&agent, options, outcome, events);
        agent.hand_in(&Account { facts: outcome.facts.clone() });
        let judged = outcome.judged.take().or_else(|| await_judgement(&agent, options, outcome, events));
        match judged {
            Some(Ok(judgement)) => {
                agent.part(options.node());
                judgement
            }
            Some(Err(why)) => forsaken(epoch, outcome, &why),
            None => forsaken(epoch, outcome, "it was not waited for"),
        }
    }
}

/// Tells the others that this node leaves for good, if it does.
fn part(agent: &Agent, options: &Options, outcome: &Outcome, events: &Events) {
    let unable = outcome.unable.as_deref();
    if let Some(cry) = farewell(options.node(), (unable, outcome.interrupt.signal()), events) {
        agent.cry(cry);
    }
}

/// What a node says that leaves for good: because of what it could not do, its guard, or a signal.
fn farewell(node: usize, (unable, interrupt): (Option<&str>, Option<i32>), events: &Events) -> Option<Cry> {
    let place = format!("node {node} (host {})", host());
    let orphaned = || events.is_orphaned().then_some(ORPHANED);
    let why = match (unable.or_else(orphaned), interrupt) {
        (Some(why), _) => format!("{place}: {why}"),
        (None, Some(signal)) => format!("{place} was ended by {}", signals::name(signal)),
        (None, None) => return None,
    };
    Some(Cry::new(why, true))
}

/// Waits for the others. A first signal that asks for the end ends their ranks, a second this wait. An orphan stays only
/// so long that they can hear of it.
fn await_judgement(
    agent: &Agent,
    options: &Options,
    outcome: &mut Outcome,
    events: &Events,
) -> Option<Result<Judgement, String>> {
    let mut deadline = events.is_orphaned().then(|| Instant::now() + ORPHANS_STAY);
    loop {
        match events.next(deadline)? {
            Event::Judged(_, judged) => return Some(judged),
            Event::Orphaned => {
                deadline.get_or_insert_with(|| Instant::now() + ORPHANS_STAY);
            }
            Event::Signal(signal) if signals::is_ending(signal) => {
                match outcome.interrupt.hear(signal, Instant::now()) {
                    Wish::First => {}
                    Wish::Same => continue,
                    Wish::Again => return None,
                }
            }
            _ => continue,
        }
        part(agent, options, outcome, events);
    }
}

fn alone(options: &Options, epoch: u32, outcome: &Outcome) -> Judgement {
    let account = Account { facts: outcome.facts.clone() };
    let judgement = decide(&BTreeMap::from([(0, account)]), &BTreeMap::new(), None, epoch, options.max_restarts);
    Judgement { again: judgement.again && outcome.interrupt.signal().is_none(), ..judgement }
}

/// What can be said without the others.
fn forsaken(epoch: u32, outcome: &Outcome, why: &str) -> Judgement {
    let own = judge(&outcome.facts, epoch);
    let headline = format!("the judgement of node 0 was not heard: {why}");
    let details = own.map(|verdict| format!("  on this node: {}", verdict.headline)).into_iter().collect();
    Judgement { verdict: Some(Verdict { headline, details }), again: false }
}

/// Meets in a thread, so that signals are heard meanwhile. Who leaves before all have met gives its place up: the others would count on this
/// node, and it could not come again.
fn await_meeting(meeting: Meeting, events: &Events) -> Result<Met, Failure> {
    let (meeting, sender) = (Arc::new(meeting), events.sender.clone());
    let here = Arc::clone(&meeting);
    let thread = thread::Builder::new().name("phalanx-meeting".to_owned());
    let thread = thread.spawn(move || sender.send(Event::Met(meet(&here))));
    thread.map_err(|error| Failure::Stopped(format!("thread: {error}")))?;
    while let Some(event) = events.next(None) {
        match event {
            Event::Met(met) => return met.map_err(Failure::Stopped),
            Event::Orphaned => {}
            Event::Signal(signal) if signals::is_ending(signal) => {}
            _ => continue,
        }
        if let Some(met) = meeting.withdraw() {
            // Too late: the others count on this node. It ends as one that has begun, so that they hear why.
            let _ = events.sender.send(event);
            return Ok(met);
        }
        return Err(match event {
            Event::Signal(signal) => {
                tell(&format!("ended by {} before the nodes had met", signals::name(signal)));
                Failure::Code(signals::exit_code(signal))
            }
            _ => Failure::Stopped(ORPHANED.to_owned()),
        });
    }
    Err(Failure::Code(1))
}

/// `store` is where this node finds the job's store.
fn place(cards: &[Card], node: usize, store: &StoreAddress) -> Result<Place, Failure> {
    let master = cards.first().and_then(|card| card.master.as_ref());
    let master = master.ok_or_else(|| Failure::Stopped("node 0 does not say where PyTorch's ranks meet".to_owned()))?;
    let (firsts, ranks) = super::node::layout(cards);
    Ok(Place { first_rank: firsts[node], ranks, master: master.seen_from(node, store) })
}

/// How long a launcher whose guard is gone waits for other nodes.
const ORPHANS_STAY: Duration = Duration::from_secs(10);
