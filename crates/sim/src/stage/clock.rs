//! The clock of a stage: what is due when, faults above all, and the leaps over times in which nothing can happen.

use phalanx_core::Error;

use super::Stage;
use crate::actor::Actor;
use crate::fault::{Fault, LastWords, When};
use crate::network::lock;
use crate::report::{Ending, ViolationKind};

/// What a fault waits for.
#[derive(Clone, Copy)]
pub(super) enum Strike {
    Tick(u64),
    Bytes(u64),
}

impl Stage<'_> {
    /// What is there from the beginning, and what will strike later.
    pub(super) fn plan(&mut self, total: u64) {
        match &self.scene.fault {
            Some(Fault::Late { rank }) => self.actors[*rank].asleep_until = 2 * DEADLINE,
            Some(Fault::Mismatch { .. }) | None => {}
            Some(later) => {
                let strike = match later.when() {
                    Some(When::Moved(part)) => Strike::Bytes(total * part / 1000),
                    Some(When::Tick(tick)) => Strike::Tick(tick),
                    None => Strike::Tick(0),
                };
                self.pending = Some((later.clone(), strike));
                return;
            }
        }
        self.struck = self.scene.fault.clone();
    }

    /// Moves the clock, and lets happen what is due.
    pub(super) fn advance_to(&mut self, tick: u64) {
        self.now = tick;
        let moved = {
            let mut network = lock(&self.network);
            network.now = tick;
            network.moved
        };
        self.strike(moved);
        for stall in self.scene.stalls.iter().filter(|stall| stall.at == tick) {
            let actor = &mut self.actors[stall.rank];
            actor.asleep_until = actor.asleep_until.max(tick + stall.ticks);
        }
        while let Some(at) = self.news.iter().position(|(due, ..)| *due <= tick) {
            let (_, rank, cause) = self.news.swap_remove(at);
            if self.actors[rank].ending.is_none() {
                self.fail(rank, Error::aborted_by(cause));
            }
        }
        if tick > DEADLINE * (self.scene.acts.len() as u64 + 4) {
            let is_at_it = |actor: &Actor<'_>| actor.ending.is_none();
            if let Some(rank) = self.actors.iter().position(is_at_it) {
                self.violate(ViolationKind::Hang, rank, "the time is up".to_owned());
            }
        }
    }

    fn strike(&mut self, moved: u64) {
        let due = match self.pending {
            Some((_, Strike::Tick(tick))) => tick <= self.now,
            Some((_, Strike::Bytes(bytes))) => bytes <= moved,
            None => false,
        };
        let Some((fault, strike)) = self.pending.take_if(|_| due) else {
            return;
        };
        let mut network = lock(&self.network);
        if matches!(fault, Fault::Flip { .. }) && !network.flip() {
            // Nothing is in flight yet.
            self.pending = Some((fault, strike));
            return;
        }
        match fault {
            Fault::Cut { a, b, silent, .. } => network.cut(a, b, silent),
            Fault::Kill { rank, end, .. } => {
                match end {
                    LastWords::Silence => network.mute(rank),
                    end => network.leave(rank, end == LastWords::Lost),
                }
                self.actors[rank].ending.get_or_insert(Ending::Killed);
            }
            Fault::Stop { rank, resumes, .. } => {
                let until = if resumes { self.now + 2 * DEADLINE } else { u64::MAX };
                self.actors[rank].asleep_until = until;
                if !resumes {
                    self.actors[rank].ending.get_or_insert(Ending::Stopped);
                }
            }
            Fault::Flip { .. } | Fault::Late { .. } | Fault::Mismatch { .. } => {}
        }
        self.struck = Some(fault);
    }

    /// Nothing has moved for a while: tells whether chance was to blame, and if not lets time pass until something happens.
    pub(super) fn settle(&mut self) {
        self.idle = 0;
        lock(&self.network).eager = true;
        let mut moved = false;
        for rank in 0..self.scene.size() {
            let actor = &self.actors[rank];
            if actor.ending.is_none() && actor.asleep_until <= self.now {
                moved |= self.turn(rank);
            }
        }
        let arrival = {
            let mut network = lock(&self.network);
            network.eager = false;
            network.next_arrival()
        };
        if !moved && let Some(next) = self.next_event(arrival) {
            self.advance_to(next);
        }
    }

    fn next_event(&self, arrival: Option<u64>) -> Option<u64> {
        let alive = || self.actors.iter().filter(|actor| actor.ending.is_none());
        let wakes = alive().map(|actor| actor.asleep_until);
        let deadlines = alive().filter_map(|actor| Some(actor.playing.as_ref()?.since + DEADLINE));
        let strike = match self.pending {
            Some((_, Strike::Tick(tick))) => Some(tick),
            _ => None,
        };
        let stalls = self.scene.stalls.iter().map(|stall| stall.at);
        let news = self.news.iter().map(|(due, ..)| *due);
        let all = wakes.chain(deadlines).chain(strike).chain(stalls).chain(news);
        all.chain(arrival).filter(|&tick| tick > self.now).min()
    }
}

/// Ticks that a call is given. A tick stands for a microsecond; nothing but a fault lasts nearly as long.
pub(super) const DEADLINE: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use phalanx_core::Layout;

    use super::*;
    use crate::{data, draw};

    #[test]
    fn when_the_time_is_up_a_rank_is_named_that_has_not_ended() {
        let healthy = |seed| draw::scene(&mut Rng::with_seed(seed), true);
        let scene = (0..).map(healthy).find(|scene| scene.size() > 1).expect("most seeds have several ranks");
        let mut dice = Rng::with_seed(0);
        let schedules = scene.schedules(&Layout::new(0, scene.hosts.clone()).expect("rank 0 is one of them"));
        let inputs: Vec<_> = scene.acts.iter().map(|act| data::inputs(&mut dice, act)).collect();
        let mut stage = Stage::new(&scene, &schedules, &inputs, dice);
        stage.actors[0].ending = Some(Ending::Right);
        stage.advance_to(u64::MAX);
        let violation = stage.violation.expect("no program takes so long");
        assert_eq!((violation.kind, violation.rank), (ViolationKind::Hang, 1));
    }
}
