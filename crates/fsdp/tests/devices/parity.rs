//! Sharded over devices is unsharded, and is what it is on the host: the same losses for fifty steps.

use phalanx_fsdp::{Policy, Reshard};

use crate::company::Company;
use crate::job::Job;
use crate::model::mixed;
use crate::train::Task;

const CLOSE: f64 = 1e-6;

#[test]
fn every_world_has_the_losses_of_training_alone_and_of_the_host() {
    let task = Task::new(mixed(), 50);
    let alone = task.alone();
    for world in 1..=4 {
        for (reshard, ahead) in [(Reshard::Yes, 1), (Reshard::No, 0)] {
            let policy = Policy::default().reshard_after_forward(reshard);
            let policy = policy.forward_prefetch(ahead).backward_prefetch(ahead);
            let company = Company::of(world);
            let host = task.sharded(company, &policy, |_, _, _| {});
            let device = Job::new(task.clone(), company, policy).outcome(world as u64);
            let apart = [device.apart(&alone), device.apart(&host)];
            assert!(apart.iter().all(|apart| *apart <= CLOSE), "world {world}, {reshard:?}: {apart:?}");
        }
    }
}

#[test]
fn eight_ranks_of_which_most_hold_nothing_of_some_parameters_have_the_same_losses() {
    let task = Task::new(mixed(), 5);
    let device = Job::new(task.clone(), Company::of(8), Policy::default()).outcome(8);
    let apart = device.apart(&task.alone());
    assert!(apart <= CLOSE, "{apart:e}");
}
