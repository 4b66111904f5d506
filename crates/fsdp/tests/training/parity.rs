//! Sharded is unsharded: the same losses for fifty steps, whatever the world and the policy.

use phalanx_core::DType;
use phalanx_fsdp::{Policy, Reshard};

use crate::company::Company;
use crate::model::mixed;
use crate::train::Task;

const CLOSE: f64 = 1e-6;

#[test]
fn training_alone_learns() {
    let outcome = Task::new(mixed(), 50).alone();
    assert!(outcome.losses[49] < outcome.losses[0] * 0.7, "{:?}", outcome.losses);
}

#[test]
fn every_world_and_policy_has_the_losses_of_training_alone() {
    let task = Task::new(mixed(), 50);
    let alone = task.alone();
    for world in 1..=4 {
        for (reshard, ahead) in [Reshard::Yes, Reshard::No].into_iter().flat_map(|r| [0, 1, 2].map(|depth| (r, depth)))
        {
            let policy = Policy::default().reshard_after_forward(reshard);
            let policy = policy.forward_prefetch(ahead).backward_prefetch(ahead);
            let apart = task.sharded(Company::of(world), &policy, |_, _, _| {}).apart(&alone);
            assert!(apart <= CLOSE, "world {world}, {reshard:?}, {ahead} ahead: {apart:e}");
        }
    }
}

#[test]
fn a_smaller_group_serves_backward() {
    let task = Task::new(mixed(), 50);
    let alone = task.alone();
    for (world, smaller) in [(2, 1), (2, 2), (3, 1), (4, 2)] {
        let policy = Policy::default().reshard_after_forward(Reshard::Smaller);
        let apart = task.sharded(Company::of(world).smaller(smaller), &policy, |_, _, _| {}).apart(&alone);
        assert!(apart <= CLOSE, "{smaller} of {world}: {apart:e}");
    }
}

#[test]
fn replicas_of_shards_are_one_model() {
    let task = Task::new(mixed(), 50);
    let alone = task.alone();
    for (replicas, shards) in [(2, 1), (2, 2), (3, 2), (2, 3)] {
        let apart =
            task.sharded(Company::of(shards).replicas(replicas), &Policy::default(), |_, _, _| {}).apart(&alone);
        assert!(apart <= CLOSE, "{replicas} x {shards}: {apart:e}");
    }
}

#[test]
fn micro_batches_add_up_however_they_are_reduced() {
    let task = Task::new(mixed(), 50).micros(3);
    let alone = task.alone();
    let company = Company::of(2).replicas(2);
    let check = |what: &str, apart: f64| assert!(apart <= CLOSE, "{what}: {apart:e}");
    let all = task.sharded(Company::of(3), &Policy::default(), |_, _, _| {});
    check("each is reduced", all.apart(&alone));
    let last = task.sharded(Company::of(4), &Policy::default(), |model, _, micro| {
        model.set_sync(micro == 2);
        model.set_reshard_after_backward(micro == 2);
        model.set_last_backward(micro == 2);
    });
    check("the last is reduced", last.apart(&alone));
    let some = task.sharded(company, &Policy::default(), |model, _, micro| {
        [1, 3].iter().for_each(|unit| model.set_unit_sync(*unit, micro == 2).expect("a unit"));
        model.set_last_backward(micro == 2);
    });
    check("some units each time", some.apart(&alone));
    let partial = task.sharded(company, &Policy::default(), |model, _, micro| model.set_all_reduce(micro == 2));
    check("replicas join the last", partial.apart(&alone));
}

#[test]
fn mixed_precision_stays_near() {
    let task = Task::new(mixed(), 50);
    let alone = task.alone();
    let types = [DType::BF16, DType::F16];
    for (compute, world) in types.into_iter().flat_map(|dtype| [2, 3].map(|world| (dtype, world))) {
        let own = Policy::default().compute(compute);
        for policy in [own.clone(), own.reduce(DType::F32), Policy::default().reduce(compute)] {
            let apart = task.sharded(Company::of(world), &policy, |_, _, _| {}).apart(&alone);
            assert!(apart <= 2e-2 && apart > 0.0, "{policy:?}, world {world}: {apart:e}");
        }
    }
}
