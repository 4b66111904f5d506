//! Every policy over devices has the losses of training alone, whatever order the seed decides, and nothing is unordered.

use phalanx_core::DType;
use phalanx_fsdp::{Class, Offload, Policy, Reshard};

use crate::company::Company;
use crate::job::{Job, Model};
use crate::model::mixed;
use crate::seats::seeds;
use crate::train::Task;

const CLOSE: f64 = 1e-6;
const STEPS: usize = 4;

fn task() -> Task {
    Task::new(mixed(), STEPS)
}

/// Runs a job under several seeds.
fn check(what: &str, few: u64, job: &Job) {
    let alone = job.task.alone();
    for seed in seeds(few) {
        let apart = job.outcome(seed).apart(&alone);
        assert!(apart <= CLOSE, "{what}, seed {seed}: {apart:e}");
    }
}

#[test]
fn units_are_freed_or_kept_with_any_number_ahead() {
    for (reshard, ahead) in [Reshard::Yes, Reshard::No].into_iter().flat_map(|r| [0, 1, 2, 4].map(|depth| (r, depth))) {
        let policy = Policy::default().reshard_after_forward(reshard);
        let policy = policy.forward_prefetch(ahead).backward_prefetch(ahead);
        for world in [1, 2, 3] {
            let job = Job::new(task(), Company::of(world), policy.clone());
            check(&format!("world {world}, {reshard:?}, {ahead} ahead"), 2, &job);
        }
    }
}

#[test]
fn a_smaller_group_serves_backward() {
    for (world, smaller) in [(2, 1), (2, 2), (4, 2)] {
        let policy = Policy::default().reshard_after_forward(Reshard::Smaller);
        check(&format!("{smaller} of {world}"), 2, &Job::new(task(), Company::of(world).smaller(smaller), policy));
    }
}

#[test]
fn replicas_of_shards_are_one_model() {
    for (replicas, shards) in [(2, 1), (2, 2), (3, 2)] {
        let company = Company::of(shards).replicas(replicas);
        check(&format!("{replicas} x {shards}"), 2, &Job::new(task(), company, Policy::default()));
    }
}

#[test]
fn micro_batches_add_up_however_they_are_reduced() {
    let task = task().micros(3);
    let company = Company::of(2).replicas(2);
    check("each is reduced", 2, &Job::new(task.clone(), Company::of(3), Policy::default()));
    let last = Job::new(task.clone(), Company::of(4), Policy::default()).before(|model, _, micro| {
        model.set_sync(micro == 2);
        model.settings_mut().reshards_after_backward = micro == 2;
        model.settings_mut().is_last_backward = micro == 2;
    });
    check("the last is reduced", 2, &last);
    let running_on = Job::new(task.clone(), company, Policy::default()).before(|model, _, micro| {
        model.settings_mut().is_last_backward = micro == 2;
    });
    check("reductions run on past a backward", 2, &running_on);
    let partial = Job::new(task, company, Policy::default()).before(|model, _, micro| {
        model.settings_mut().all_reduces = micro == 2;
    });
    check("replicas join the last", 2, &partial);
}

#[test]
fn gradients_of_units_that_the_last_micro_batch_skips_are_reduced() {
    let (task, company) = (task().micros(2), Company::of(2).replicas(2));
    let ways: [(&str, Setting); 2] = [
        ("in full", |model, waits| model.set_sync(!waits)),
        ("as parts", |model, waits| model.settings_mut().all_reduces = !waits),
    ];
    for (what, wait) in ways {
        let job = Job::new(task.clone(), company, Policy::default()).before(move |model, _, micro| {
            wait(model, micro == 0);
            if micro == 1 {
                model.finish_backward().expect("one that comes to nothing");
                assert_eq!(model.memory().of(Class::Accumulated).current, 0, "{what}");
            }
        });
        check(what, 2, &job);
    }
}

/// How a model is told to hold gradients back, or not.
type Setting = fn(&mut Model, bool);

#[test]
fn gradients_of_a_backward_that_is_given_up_leave_nothing_behind() {
    let (task, company) = (task().micros(2), Company::of(2).replicas(2));
    let host = task.sharded(company, &Policy::default(), |model, _, micro| {
        if micro == 1 {
            model.zero_gradients();
        }
    });
    assert!(host.apart(&task.alone()) > 1e-3, "nothing was given up");
    let ways: [(&str, Setting); 4] = [
        ("reduced", |_, _| {}),
        ("in full", |model, waits| model.set_sync(!waits)),
        ("as parts", |model, waits| model.settings_mut().all_reduces = !waits),
        ("on their way", |model, waits| model.settings_mut().is_last_backward = !waits),
    ];
    for ((what, wait), offload) in ways.into_iter().flat_map(|way| [Offload::No, Offload::Host].map(|to| (way, to))) {
        let job = Job::new(task.clone(), company, Policy::default().offload(offload)).before(move |model, _, micro| {
            wait(model, micro == 0);
            if micro == 1 {
                model.zero_gradients().expect("dropped");
                assert_eq!(model.memory().of(Class::Accumulated).current, 0, "{what}");
            }
        });
        for seed in seeds(2) {
            let apart = job.outcome(seed).apart(&host);
            assert!(apart <= CLOSE, "{what}, {offload:?}, seed {seed}: {apart:e}");
        }
    }
}

#[test]
fn shards_and_gradients_may_live_on_the_host() {
    let policy = Policy::default().offload(Offload::Host);
    for world in 1..=3 {
        check(&format!("world {world}"), 2, &Job::new(task(), Company::of(world), policy.clone()));
    }
    let added = Job::new(task().micros(2), Company::of(2), policy.clone().forward_prefetch(2).backward_prefetch(2));
    check("micro-batches are added on their way", 2, &added);
    let replicas = Job::new(task(), Company::of(2).replicas(2), policy.reshard_after_forward(Reshard::No));
    check("replicas", 2, &replicas);
}

#[test]
fn gradients_may_lie_in_memory_of_the_programs_own() {
    let job = Job { has_own_gradients: true, ..Job::new(task(), Company::of(3), Policy::default()) };
    check("own memory, dropped at once", 4, &job);
}

#[test]
fn reductions_may_have_a_communicator_of_their_own() {
    let job = Job { reduces_apart: true, ..Job::new(task(), Company::of(3), Policy::default().backward_prefetch(2)) };
    check("two communicators", 4, &job);
}

#[test]
fn the_optimizer_may_step_inside_backward() {
    for (world, reshard) in (1..=4).flat_map(|world| [Reshard::Yes, Reshard::No].map(|reshard| (world, reshard))) {
        let policy = Policy::default().reshard_after_forward(reshard).forward_prefetch(2);
        let job = Job { steps_inside: true, ..Job::new(task(), Company::of(world), policy) };
        check(&format!("world {world}, {reshard:?}"), 2, &job);
    }
    let replicas = Job::new(task(), Company::of(2).replicas(2), Policy::default());
    check("replicas", 2, &Job { steps_inside: true, ..replicas });
}

#[test]
fn mixed_precision_stays_near_and_is_what_it_is_on_the_host() {
    let task = Task::new(mixed(), 20);
    let alone = task.alone();
    for (compute, world) in [(DType::BF16, 2), (DType::F16, 3)] {
        let own = Policy::default().compute(compute);
        for policy in [own.clone(), own.clone().reduce(DType::F32), Policy::default().reduce(compute)] {
            let company = Company::of(world);
            let host = task.sharded(company, &policy, |_, _, _| {});
            let device = Job::new(task.clone(), company, policy.clone()).outcome(1);
            let apart = [device.apart(&alone), device.apart(&host)];
            assert!(apart[0] <= 2e-2 && apart[0] > 0.0 && apart[1] <= 1e-2, "{policy:?}, world {world}: {apart:?}");
        }
        let offloaded = Job::new(task.clone(), Company::of(world), own.reduce(DType::F32).offload(Offload::Host));
        let apart = offloaded.outcome(2).apart(&alone);
        assert!(apart <= 2e-2 && apart > 0.0, "offloaded: {apart:e}");
    }
}

/// In which type each is gathered the job holds itself.
#[test]
fn units_of_several_types_stay_near_and_are_what_they_are_on_the_host() {
    let mut blocks = mixed();
    blocks[1].compute = Some(DType::F32);
    blocks[2].compute = Some(DType::F16);
    blocks[4].compute = Some(DType::F32);
    let task = Task::new(blocks, 20);
    let (alone, company) = (task.alone(), Company::of(2));
    for reshard in [Reshard::Yes, Reshard::No] {
        let policy = Policy::default().compute(DType::BF16).reduce(DType::F32).reshard_after_forward(reshard);
        let host = task.sharded(company, &policy, |_, _, _| {});
        let device = Job::new(task.clone(), company, policy).outcome(1);
        let apart = [device.apart(&alone), device.apart(&host)];
        assert!(apart[0] <= 2e-2 && apart[0] > 0.0 && apart[1] <= 1e-2, "{reshard:?}: {apart:?}");
    }
}

#[test]
fn a_divisor_of_ones_own_takes_the_place_of_the_ranks() {
    let task = task();
    let host = task.sharded(Company::of(2), &Policy::default(), |model, _, _| {
        model.set_gradient_divisor(Some(3.0)).expect("a divisor")
    });
    let job = Job::new(task, Company::of(2), Policy::default());
    let apart =
        job.before(|model, _, _| model.set_gradient_divisor(Some(3.0)).expect("a divisor")).outcome(5).apart(&host);
    assert!(apart <= CLOSE, "{apart:e}");
}
