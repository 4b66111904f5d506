//! The stage: polls the ranks of a scene one after the other, until all have ended or something happened that must not.

mod clock;
mod judge;

use std::sync::{Arc, Mutex};

use clock::Strike;
use fastrand::Rng;
use phalanx_core::Error;
use phalanx_core::player::Progress;
use phalanx_core::schedule::Schedule;

use crate::actor::Actor;
use crate::board::Board;
use crate::fault::Fault;
use crate::network::{Network, Shared, lock};
use crate::oracle::Oracle;
use crate::report::{Ending, Violation};
use crate::scene::Scene;

/// A world at play.
pub(crate) struct Stage<'a> {
    scene: &'a Scene,
    schedules: &'a [Vec<Schedule>],
    inputs: &'a [Vec<Vec<u8>>],
    oracles: Vec<Oracle<'a>>,
    network: Shared,
    actors: Vec<Actor<'a>>,
    dice: Rng,
    now: u64,
    /// Polls in a row that brought nothing.
    idle: usize,
    /// Who was polled last.
    last: usize,
    /// The fault that has not struck yet, and what it waits for.
    pending: Option<(Fault, Strike)>,
    /// The fault that has struck.
    struck: Option<Fault>,
    /// A rank that will hear of a failure, when, and which.
    news: Vec<(u64, usize, Error)>,
    violation: Option<Violation>,
    answers: u64,
}

/// How a play went.
pub(crate) struct Outcome {
    pub(crate) endings: Vec<Ending>,
    pub(crate) violation: Option<Violation>,
    pub(crate) struck: bool,
    pub(crate) answers: u64,
    pub(crate) ticks: u64,
    pub(crate) bytes: u64,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(
        scene: &'a Scene,
        schedules: &'a [Vec<Schedule>],
        inputs: &'a [Vec<Vec<u8>>],
        mut dice: Rng,
    ) -> Stage<'a> {
        let network = Network::new(scene.size(), scene.temper.clone(), dice.fork());
        let network = Arc::new(Mutex::new(network));
        let offers = |rank: usize| schedules.iter().map(|act| act[rank].offers()).sum();
        let board = Arc::new(Board::new((0..scene.size()).map(offers)));
        let actors = (0..scene.size()).map(|rank| Actor::new(rank, scene, &network, &board));
        let total = total_byte_len(scene, schedules);
        let oracles = scene.acts.iter().zip(inputs).map(|(act, inputs)| Oracle::new(act, inputs));
        let mut stage = Stage {
            actors: actors.collect(),
            oracles: oracles.collect(),
            scene,
            schedules,
            inputs,
            network,
            dice,
            now: 0,
            idle: 0,
            last: 0,
            pending: None,
            struck: None,
            news: vec![],
            violation: None,
            answers: 0,
        };
        stage.plan(total);
        stage
    }

    /// Plays to the end, or to the first violation.
    pub(crate) fn play(mut self) -> Outcome {
        while self.violation.is_none() && self.actors.iter().any(|actor| actor.ending.is_none()) {
            self.advance_to(self.now + 1);
            let polled = self.pick().map(|rank| self.turn(rank));
            self.idle = match polled {
                Some(true) => 0,
                Some(false) => self.idle + 1,
                None => usize::MAX,
            };
            if self.idle > PATIENCE * self.scene.size() {
                self.settle();
            }
        }
        self.end()
    }

    /// Who is polled next, unless everybody sleeps.
    fn pick(&mut self) -> Option<usize> {
        let awake = |actor: &Actor<'_>| actor.ending.is_none() && actor.asleep_until <= self.now;
        if self.dice.u8(..) < self.scene.temper.burst && awake(&self.actors[self.last]) {
            return Some(self.last);
        }
        let count = self.actors.iter().filter(|actor| awake(actor)).count();
        let nth = |nth: usize| {
            let mut awake = (0..self.actors.len()).filter(|&rank| awake(&self.actors[rank]));
            awake.nth(nth)
        };
        let picked = (count > 0).then(|| nth(self.dice.usize(..count)))??;
        let again = self.scene.temper.slow == Some(picked) && self.dice.u8(..) < SLOWNESS;
        self.last = if again { nth(self.dice.usize(..count))? } else { picked };
        Some(self.last)
    }

    /// Lets one rank play on; true when it got anywhere.
    fn turn(&mut self, rank: usize) -> bool {
        let act = self.actors[rank].done();
        let fresh = self.actors[rank].playing.is_none();
        let mut begun = Ok(());
        if fresh {
            let (call, schedule) = (&self.scene.acts[act].calls[rank], &self.schedules[act][rank]);
            let (given, size) = (&self.inputs[act][rank], self.scene.size());
            begun = self.actors[rank].begin(call, schedule, given, size, self.now);
        }
        match begun.and_then(|()| self.actors[rank].poll()) {
            Ok(Progress::Done) => self.finish(rank),
            Err(error) => self.fail(rank, error),
            Ok(_) if self.is_overdue(rank) => self.time_out(rank),
            Ok(progress) => return fresh || progress == Progress::Moved,
        }
        true
    }

    fn end(mut self) -> Outcome {
        self.judge_mismatch();
        let endings = self.actors.into_iter().map(|actor| actor.ending.unwrap_or(Ending::Unfinished));
        Outcome {
            endings: endings.collect(),
            violation: self.violation,
            struck: self.struck.is_some(),
            answers: self.answers,
            ticks: self.now,
            bytes: lock(&self.network).moved,
        }
    }
}

/// Bytes that all schedules send and offer.
fn total_byte_len(scene: &Scene, schedules: &[Vec<Schedule>]) -> u64 {
    let rank = |(act, rank): (usize, usize)| {
        let (call, schedule) = (&scene.acts[act].calls[rank], &schedules[act][rank]);
        (schedule.sent() + schedule.offered()) * call.dtype.byte_len()
    };
    let all = (0..scene.acts.len()).flat_map(|act| (0..scene.size()).map(move |rank| (act, rank)));
    all.map(rank).sum::<usize>() as u64
}

/// Polls of each rank without any success before it is asked whether anything can move at all.
const PATIENCE: usize = 3;
/// Of 256 times that a slow rank is chosen, how often somebody else is chosen instead.
const SLOWNESS: u8 = 230;
