//! The judge of a stage: whether an answer is right, and whether anything called for an error.

use std::time::Duration;

use phalanx_core::schedule::Step;
use phalanx_core::{Chain, Error, Op, Stuck, Timeout, Waiting};

use super::Stage;
use super::clock::DEADLINE;
use crate::fault::Fault;
use crate::network::lock;
use crate::oracle::Answer;
use crate::report::{Ending, Violation, ViolationKind};

impl Stage<'_> {
    /// A rank's operation is over: its answer must be right, and no barrier may let it go before all have come.
    pub(super) fn finish(&mut self, rank: usize) {
        let act = self.actors[rank].done();
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
        self.actors[rank].ended.push(self.now);
        self.answers += 1;
        if !right {
            self.violate(ViolationKind::WrongAnswer, rank, format!("in operation {act}: {call}"));
        }
        let absent = self.actors.iter().position(|other| other.begun() <= act);
        if let Some(absent) = absent.filter(|_| call.op == Op::Barrier) {
            let what = format!("left the barrier of operation {act} before rank {absent} had come");
            self.violate(ViolationKind::EarlyLeave, rank, what);
        }
        if self.actors[rank].done() == self.scene.acts.len() {
            self.actors[rank].ending = Some(Ending::Right);
        }
    }

    pub(super) fn is_overdue(&self, rank: usize) -> bool {
        let playing = self.actors[rank].playing.as_ref();
        playing.is_some_and(|playing| playing.since + DEADLINE <= self.now)
    }

    pub(super) fn time_out(&mut self, rank: usize) {
        let act = self.actors[rank].done();
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
        let operation = self.actors[rank].done();
        self.actors[rank].ending = Some(Ending::Failed { operation, error });
        lock(&self.network).leave(rank, false);
    }

    /// What is wrong with an error: nothing called for it, or it blames a rank to which nothing happened.
    fn fault_in(&self, rank: usize, error: &Error) -> Option<(ViolationKind, String)> {
        let network = lock(&self.network);
        let called_for = match error {
            Error::Timeout(timeout) => {
                let may_name = |stuck: &Stuck| self.may_wait(rank, stuck) || network.is_flipped(stuck.peer, rank);
                self.struck.is_some() && !timeout.stuck.is_empty() && timeout.stuck.iter().all(may_name)
            }
            Error::Aborted(_) => self.struck.is_some(),
            Error::Desync(desync) => {
                let differ = self.call_different_things(rank, desync.peer) || network.is_flipped(desync.peer, rank);
                desync.rank == rank && differ
            }
            Error::Peer(peer) => peer.rank != rank && network.is_hurt(peer.rank, rank),
            _ => false,
        };
        let kind = match error {
            Error::Timeout(_) if self.struck.is_none() => ViolationKind::Hang,
            _ => ViolationKind::FalseAlarm,
        };
        (!called_for).then(|| (kind, error.to_string()))
    }

    /// Whether a rank whose deadline has passed may wait for this: nobody waits for itself, nor for whoever has long ended the
    /// operation, unless the fault is between the two.
    fn may_wait(&self, rank: usize, Stuck { peer, on }: &Stuck) -> bool {
        let peer = *peer;
        if peer == rank || *on == Waiting::Working {
            return peer == rank && *on == Waiting::Working;
        }
        let is_between = match &self.struck {
            Some(Fault::Cut { a, b, .. }) => [(rank, peer), (peer, rank)].contains(&(*a, *b)),
            Some(Fault::Kill { rank: killed, .. }) => *killed == peer,
            // It comes too late to what the others gave in time.
            Some(Fault::Late { rank: kept } | Fault::Stop { rank: kept, .. }) => *kept == rank,
            _ => self.call_different_things(rank, peer),
        };
        let ended = self.actors[peer].ended.get(self.actors[rank].done());
        is_between || ended.is_none_or(|&ended| ended + ON_ITS_WAY > self.now)
    }

    /// Whether two ranks have called different things by the operation that `rank` is in.
    fn call_different_things(&self, rank: usize, peer: usize) -> bool {
        let done = self.actors[rank].done();
        matches!(&self.struck, Some(Fault::Mismatch { rank: odd, act }) if [rank, peer].contains(odd) && *act <= done)
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

/// For so many ticks what a rank gave before it ended an operation may be on its way: longer than any stall and any delay, and much
/// less than anybody waits.
const ON_ITS_WAY: u64 = DEADLINE / 100;

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use phalanx_core::{Desync, Layout};

    use super::*;
    use crate::fault::When;
    use crate::scene::Scene;
    use crate::{data, draw};

    /// Lets rank 1 be past the first operation, in which rank 0 still is, after a fault.
    fn with_a_rank_ahead(fault: Fault, check: impl FnOnce(&mut Stage<'_>)) {
        let healthy = |seed| draw::scene(&mut Rng::with_seed(seed), true);
        let fits = |scene: &Scene| scene.size() > 2 && scene.acts.len() > 1;
        let scene = (0..).map(healthy).find(fits).expect("most seeds have several ranks and operations");
        let mut dice = Rng::with_seed(0);
        let schedules = scene.schedules(&Layout::new(0, scene.hosts.clone()).expect("rank 0 is one of them"));
        let inputs: Vec<_> = scene.acts.iter().map(|act| data::inputs(&mut dice, act)).collect();
        let mut stage = Stage::new(&scene, &schedules, &inputs, dice);
        stage.actors[1].ended.push(1);
        stage.now = 1 + DEADLINE;
        stage.struck = Some(fault);
        check(&mut stage);
    }

    /// What is wrong with a timeout of rank 0 that names a peer.
    fn verdict(stage: &Stage<'_>, peer: usize, on: Waiting) -> Option<ViolationKind> {
        let stuck = vec![Stuck { peer, on }];
        let (op, after) = (stage.scene.acts[0].usual().op.kind(), Duration::from_micros(DEADLINE));
        let timeout = Timeout { op, sequence: 0, after, stuck, chain: Chain::Direct };
        stage.fault_in(0, &Error::Timeout(Box::new(timeout))).map(|(kind, _)| kind)
    }

    fn cut(a: usize, b: usize) -> Fault {
        Fault::Cut { a, b, silent: true, when: When::Tick(0) }
    }

    #[test]
    fn a_timeout_that_names_a_rank_past_the_operation_is_a_false_alarm() {
        for fault in [cut(0, 2), Fault::Late { rank: 2 }, Fault::Mismatch { rank: 2, act: 0 }] {
            with_a_rank_ahead(fault, |stage| {
                assert_eq!(verdict(stage, 1, Waiting::Giving), Some(ViolationKind::FalseAlarm));
                assert_eq!(verdict(stage, 2, Waiting::Giving), None, "it is not past the operation");
            });
        }
    }

    #[test]
    fn what_a_rank_gave_just_before_may_still_be_on_its_way() {
        with_a_rank_ahead(Fault::Late { rank: 2 }, |stage| {
            stage.now = 1;
            assert_eq!(verdict(stage, 1, Waiting::Giving), None);
        });
    }

    #[test]
    fn it_is_none_where_the_fault_is_between_the_two() {
        for fault in [cut(1, 0), Fault::Late { rank: 0 }, Fault::Mismatch { rank: 1, act: 0 }] {
            with_a_rank_ahead(fault, |stage| assert_eq!(verdict(stage, 1, Waiting::Taking), None));
        }
        with_a_rank_ahead(Fault::Mismatch { rank: 1, act: 1 }, |stage| {
            assert!(verdict(stage, 1, Waiting::Taking).is_some(), "they still agreed in the first operation");
        });
    }

    #[test]
    fn only_the_rank_itself_can_be_at_work_and_it_waits_for_nothing_of_its_own() {
        with_a_rank_ahead(cut(0, 1), |stage| {
            assert_eq!(verdict(stage, 0, Waiting::Working), None);
            assert_eq!(verdict(stage, 0, Waiting::Giving), Some(ViolationKind::FalseAlarm));
            assert_eq!(verdict(stage, 2, Waiting::Working), Some(ViolationKind::FalseAlarm));
        });
    }

    #[test]
    fn a_disagreement_is_called_for_between_the_odd_rank_and_another_in_what_it_called_and_after() {
        let differ = |rank, peer| {
            let (field, [ours, theirs]) = ("count", ["1", "2"].map(str::to_owned));
            Error::Desync(Box::new(Desync { sequence: 0, rank, peer, field, ours, theirs, moved: true, site: None }))
        };
        with_a_rank_ahead(Fault::Mismatch { rank: 1, act: 0 }, |stage| {
            assert_eq!(stage.fault_in(0, &differ(0, 1)), None);
            assert_eq!(stage.fault_in(1, &differ(1, 2)), None);
            assert!(stage.fault_in(0, &differ(0, 2)).is_some(), "two others");
            assert!(stage.fault_in(0, &differ(2, 1)).is_some(), "another rank's");
        });
        with_a_rank_ahead(Fault::Mismatch { rank: 1, act: 1 }, |stage| {
            assert!(stage.fault_in(0, &differ(0, 1)).is_some(), "they still agreed in the first operation");
        });
    }
}
