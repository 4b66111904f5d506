//! The judge of a stage: whether an answer is right, and whether anything called for an error.

use std::time::Duration;

use phalanx_core::schedule::Step;
use phalanx_core::{Chain, Error, Op, Timeout};

use super::Stage;
use super::clock::DEADLINE;
use crate::fault::Fault;
use crate::network::lock;
use crate::oracle::Answer;
use crate::report::{Ending, Violation, ViolationKind};

impl Stage<'_> {
    /// A rank's operation is over: its answer must be right, and no barrier may let it go before all have come.
    pub(super) fn finish(&mut self, rank: usize) {
        let act = self.actors[rank].done;
        let Some(playing) = self.actors[rank].playing.take() else {
            return;
        };
        let call = &self.scene.acts[act].calls[rank];
        let size = self.scene.size();
        let given = &self.inputs[act][rank];
        let right = match self.oracles[act].answer(rank) {
            Answer::Bytes(bytes) => playing.output[call.result_start(rank)..].starts_with(&bytes),
            Answer::Untouched => playing.output == call.buffers(rank, size, given).1,
            Answer::Undefined => false,
        };
        self.actors[rank].done += 1;
        self.answers += 1;
        if !right {
            self.violate(ViolationKind::WrongAnswer, rank, format!("in operation {act}: {call}"));
        }
        let absent = self.actors.iter().position(|other| other.begun() <= act);
        if let Some(absent) = absent.filter(|_| call.op == Op::Barrier) {
            let what = format!("left the barrier of operation {act} before rank {absent} had come");
            self.violate(ViolationKind::EarlyLeave, rank, what);
        }
        if self.actors[rank].done == self.scene.acts.len() {
            self.actors[rank].ending = Some(Ending::Right);
        }
    }

    pub(super) fn is_overdue(&self, rank: usize) -> bool {
        let playing = self.actors[rank].playing.as_ref();
        playing.is_some_and(|playing| playing.since + DEADLINE <= self.now)
    }

    pub(super) fn time_out(&mut self, rank: usize) {
        let act = self.actors[rank].done;
        let stuck = self.actors[rank].stuck();
        let timeout = Timeout {
            op: self.scene.acts[act].calls[rank].op.kind(),
            sequence: act as u32,
            after: Duration::from_micros(DEADLINE),
            stuck,
            chain: Chain::Direct,
        };
        self.fail(rank, Error::Timeout(Box::new(timeout)));
    }

    /// A rank's part is over by an error: its links close, and perhaps the others are told.
    pub(super) fn fail(&mut self, rank: usize, error: Error) {
        if let Some((kind, what)) = self.fault_in(rank, &error) {
            self.violate(kind, rank, what);
        }
        if self.scene.spread {
            for other in (0..self.scene.size()).filter(|&other| other != rank) {
                let due = self.now + 1 + self.dice.u64(..50);
                self.news.push((due, other, error.clone()));
            }
        }
        let operation = self.actors[rank].done;
        self.actors[rank].ending = Some(Ending::Failed { operation, error });
        lock(&self.network).leave(rank, false);
    }

    /// What is wrong with an error: nothing called for it, or it blames a rank to which nothing happened.
    fn fault_in(&self, rank: usize, error: &Error) -> Option<(ViolationKind, String)> {
        let network = lock(&self.network);
        let called_for = match error {
            Error::Timeout(timeout) => self.struck.is_some() && !timeout.stuck.is_empty(),
            Error::Aborted(_) => self.struck.is_some(),
            Error::Desync(_) => matches!(self.struck, Some(Fault::Mismatch { .. })) || network.is_flipped(),
            Error::Peer(peer) => peer.rank != rank && network.is_hurt(peer.rank, rank),
            _ => false,
        };
        let kind = match error {
            Error::Timeout(_) if self.struck.is_none() => ViolationKind::Hang,
            _ => ViolationKind::FalseAlarm,
        };
        (!called_for).then(|| (kind, error.to_string()))
    }

    /// Only the first counts: what comes after may be its consequence.
    pub(super) fn violate(&mut self, kind: ViolationKind, rank: usize, what: String) {
        self.violation.get_or_insert(Violation { kind, rank, what });
    }

    /// A mismatch must come out somewhere.
    pub(super) fn judge_mismatch(&mut self) {
        let all_right = self.actors.iter().all(|actor| matches!(actor.ending, Some(Ending::Right)));
        if let (true, Some(Fault::Mismatch { rank, act })) = (all_right, &self.struck) {
            let (rank, act) = (*rank, *act);
            // Who has nothing to give or take tells nobody, and cannot be told.
            if self.schedules[act][rank].steps.iter().any(is_shared) {
                self.violate(ViolationKind::Unnoticed, rank, format!("nobody noticed in operation {act}"));
            }
        }
    }
}

/// Whether a step has to do with another rank.
fn is_shared(step: &Step) -> bool {
    matches!(step, Step::Move { .. } | Step::Offer { .. } | Step::Pull { .. } | Step::PullAll { .. })
}
