//! The list that a card goes through too, on the simulator: in worlds of 1 to 8.

use std::time::Duration;

use phalanx_core::Layout;
use phalanx_nccl::conformance::{Candidate, trials};
use phalanx_nccl::group::Stack;
use phalanx_nccl::sim::Simulation;

use crate::seats::{DEVICE, clean, seeds};

#[test]
fn every_trial_is_passed_in_every_world() {
    for (seed, size) in seeds(1).flat_map(|seed| (1..=8).map(move |size| (seed, size))) {
        let outcome = Simulation::new(size, seed).run(|rank| {
            let stack = Stack::new(rank.nccl, rank.cuda, rank.process, DEVICE);
            let layout = Layout::one_host(rank.rank, rank.size).expect("a layout");
            let candidate = Candidate::new(stack, layout, rank.store, Duration::from_secs(5)).expect("a group");
            let candidate = candidate.knowing_nan_check();
            trials().iter().map(|trial| (trial.name(), trial.run(&candidate))).collect::<Vec<_>>()
        });
        for (rank, verdicts) in outcome.results.iter().enumerate() {
            for (name, verdict) in verdicts.as_ref().expect("an end") {
                let is_alone = size == 1 && ["messages", "batches"].contains(name);
                let is_right = verdict.as_ref().is_ok_and(|skipped| skipped.is_some() == is_alone);
                assert!(is_right, "seed {seed}: {name} on rank {rank} of {size}: {verdict:?}");
            }
        }
        clean(&outcome, seed);
    }
}
