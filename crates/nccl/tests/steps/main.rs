//! A sharded training step over streams, with prefetch and offload, and the mistakes that can be made in its order: each is told by the race
//! detector, and the step without one is clean.

#[path = "../jobs/seats.rs"]
mod seats;
mod step;

use phalanx_core::ReduceOp;
use phalanx_nccl::group::NcclOptions;
use phalanx_nccl::sim::{Finding, Outcome, Plant, Simulation};
use seats::{clean, group, seeds};
use step::{Mistake, UNITS, step};

fn ran(size: usize, seed: u64, mistake: Option<Mistake>) -> Outcome<Vec<Vec<f32>>> {
    Simulation::new(size, seed).run(move |rank| step(&rank, mistake))
}

#[test]
fn the_step_without_a_mistake_is_clean_and_right() {
    for (seed, size) in seeds(12).flat_map(|seed| (1..=4).map(move |size| (seed, size))) {
        let outcome = ran(size, seed, None);
        clean(&outcome, seed);
        for (rank, shards) in outcome.results.into_iter().enumerate() {
            let shards = shards.expect("an end");
            for (unit, shard) in shards.iter().enumerate() {
                assert_eq!(shard[..], step::expected(rank, unit)[..], "seed {seed}: rank {rank} of {size}");
            }
            assert_eq!(shards.len(), UNITS);
        }
    }
}

#[test]
fn every_mistake_is_told() {
    for mistake in Mistake::ALL {
        let told = seeds(12).filter(|&seed| ran(2, seed, Some(mistake)).findings.iter().any(is_race)).count();
        let all = seeds(12).count();
        // Where a thread of the host happened to have seen an end before, that run was in order after all.
        assert!(told * 4 >= all * 3, "{mistake:?}: {told} of {all} seeds");
    }
}

#[test]
fn every_bug_planted_into_the_group_is_told() {
    for plant in Plant::ALL {
        let job = |seed| Simulation::new(2, seed).plant(plant);
        let in_step = |seed| job(seed).run(|rank| step(&rank, Some(Mistake::None))).findings;
        let told = seeds(12).filter(|&seed| in_step(seed).iter().chain(&staged(job(seed))).any(is_race)).count();
        let all = seeds(12).count();
        assert!(told * 4 >= all * 3, "{plant:?}: {told} of {all} seeds");
    }
}

/// What is found in operations over memory of the host, which goes to the device and back.
fn staged(job: Simulation) -> Vec<Finding> {
    let outcome = job.run(|rank| {
        let group = group(&rank, "staged", NcclOptions::default()).expect("a group");
        let _ = group.group().all_reduce(&mut [1.0_f32; 8], ReduceOp::Sum);
    });
    outcome.findings
}

fn is_race(finding: &Finding) -> bool {
    matches!(finding, Finding::Race { .. } | Finding::UseAfterFree { .. })
}
