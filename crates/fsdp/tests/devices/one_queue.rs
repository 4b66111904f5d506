//! Devices with room for one operation of all groups: what the engine does in several comes there in one order on all ranks.

use phalanx_fsdp::Policy;
use phalanx_nccl::sim::{Fault, Simulation};

use crate::company::Company;
use crate::job::Job;
use crate::kernels;
use crate::model::mixed;
use crate::seats::{clean, seeds};
use crate::train::Task;

/// Ranks on whose devices operations came in different orders would wait for each other, until they are late.
fn comes_to_its_end(what: &str, job: &Job) {
    let ranks = job.company.size();
    for seed in seeds(8) {
        let job = job.clone();
        let known = kernels::known(Simulation::new(ranks, seed), &job.task.blocks);
        let simulation = (0..ranks).fold(known, |simulation, rank| simulation.fault(rank, Fault::OneQueue));
        let outcome = simulation.run(move |rank| job.on(&rank).map(drop));
        clean(&outcome, seed);
        let is_well = outcome.results.iter().all(|end| matches!(end, Some(Ok(()))));
        assert!(is_well, "{what}, seed {seed}: {:?}", outcome.results);
    }
}

#[test]
fn groups_of_shards_and_replicas_wait_for_none_of_each_others_operations() {
    comes_to_its_end("replicas", &Job::new(Task::new(mixed(), 2), Company::of(2).replicas(2), Policy::default()));
}

#[test]
fn gathers_and_reductions_wait_for_none_of_each_others_operations() {
    let job = |company| Job { reduces_apart: true, ..Job::new(Task::new(mixed(), 2), company, Policy::default()) };
    comes_to_its_end("reductions apart", &job(Company::of(2)));
    comes_to_its_end("reductions apart, and replicas", &job(Company::of(2).replicas(2)));
}
