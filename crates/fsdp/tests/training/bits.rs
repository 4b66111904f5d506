//! What must be the same to the last bit: whatever the policy, whoever is late, and beside a model of mixed types made by hand.

use std::thread;

use half::{bf16, f16};
use phalanx_core::DType;
use phalanx_fsdp::{Policy, Reshard};

use crate::company::Company;
use crate::company::Way;
use crate::model::{AGAIN, GAIN, WEIGHT, loss, mixed};
use crate::train::{Outcome, Task, descend};

#[test]
fn one_rank_is_a_rank_alone() {
    let mut task = Task::new(mixed(), 20);
    // The two gradients of a weight that is there twice are rounded apart.
    task.blocks[2].has_again = false;
    assert_eq!(task.sharded(Company::of(1), &Policy::default(), |_, _, _| {}), task.alone());
}

#[test]
fn policies_change_no_bit() {
    let task = Task::new(mixed(), 10).micros(2);
    for world in 2..=4 {
        let plain = task.sharded(Company::of(world), &Policy::default(), |_, _, _| {});
        for (reshard, ahead) in [(Reshard::No, 0), (Reshard::Yes, 3), (Reshard::Smaller, 2)] {
            let company = Company::of(world).smaller(if world == 4 { 2 } else { 1 });
            let policy = Policy::default().reshard_after_forward(reshard);
            let policy = policy.forward_prefetch(ahead).backward_prefetch(ahead);
            let other = task.sharded(company, &policy, |model, _, micro| {
                model.set_reshard_after_backward(micro == 1);
                model.set_last_backward(micro == 1);
            });
            assert_eq!(other, plain, "{world} ranks, {reshard:?}, {ahead} ahead");
        }
    }
}

#[test]
fn ranks_that_come_at_any_time_get_the_same() {
    let task = Task::new(mixed(), 10);
    let company = Company::of(2).replicas(2);
    let plain = task.sharded(company, &Policy::default(), |_, _, _| {});
    for seed in 0..5 {
        let late = task.sharded(company, &Policy::default(), |model, step, _| {
            let place = model.groups().shard().rank() * 10 + model.groups().replicas().expect("replicas").rank();
            let mut random = fastrand::Rng::with_seed(seed * 1000 + step as u64 * 100 + place as u64);
            (0..random.usize(..2000)).for_each(|_| thread::yield_now());
        });
        assert_eq!(late, plain, "seed {seed}");
    }
}

/// Buffers in a segment are read by peers where they are, and sockets copy everything: what comes of it is the same.
#[test]
fn it_does_not_matter_how_ranks_reach_each_other() {
    let task = Task::new(mixed(), 20).micros(2);
    let alone = task.alone();
    for company in [Company::of(2), Company::of(3), Company::of(2).replicas(2), Company::of(4).smaller(2)] {
        let reshard = if company.smaller.is_some() { Reshard::Smaller } else { Reshard::Yes };
        let policy = Policy::default().reshard_after_forward(reshard).backward_prefetch(2);
        for way in [Way::Segment, Way::Sockets] {
            let apart = task.sharded(company.way(way), &policy, |_, _, _| {}).apart(&alone);
            assert!(apart <= 1e-6, "{company:?} by {way:?}: {apart:e}");
        }
    }
}

/// How a number becomes one of a narrower type.
type Round = fn(f64) -> f64;

/// Two ranks by hand: weights rounded before they are used, gradients rounded as they come, summed and kept in `f32`.
fn by_hand(task: &Task, round: impl Fn(f64) -> f64) -> Outcome {
    let (mut params, mut speeds, mut losses) = (task.initial(), task.zeros(), Vec::new());
    for step in 0..task.steps {
        let mut sums = task.zeros();
        let mut value = 0.0;
        for rank in 0..2 {
            let rounded: Vec<Vec<Vec<f64>>> = params
                .iter()
                .map(|block| block.iter().map(|param| param.iter().map(|x| round(f64::from(*x))).collect()).collect())
                .collect();
            let (own, gradients) = pass(task, &rounded, step, rank, &round);
            value += own / 2.0;
            sums.iter_mut()
                .flatten()
                .flatten()
                .zip(gradients.iter().flatten().flatten())
                .for_each(|(sum, g)| *sum += g);
        }
        losses.push(value);
        for (at, block) in task.blocks.iter().enumerate() {
            let trains = [block.trains_weight, block.trains_bias, true];
            for index in (0..=GAIN).filter(|index| trains[*index]) {
                let average: Vec<f32> = sums[at][index].iter().map(|sum| sum / 2.0).collect();
                descend(&mut params[at][index], &average, &mut speeds[at][index]);
            }
        }
    }
    Outcome { losses, params }
}

/// The loss of one rank, and its gradients, rounded and then summed where a weight is there twice.
fn pass(
    task: &Task,
    params: &[Vec<Vec<f64>>],
    step: usize,
    rank: usize,
    round: impl Fn(f64) -> f64,
) -> (f64, Vec<Vec<Vec<f32>>>) {
    let (mut x, targets) = task.batch(step, rank, 2);
    let mut saved = Vec::new();
    for (block, params) in task.blocks.iter().zip(params) {
        let (y, kept) = block.forward(params, x);
        x = y;
        saved.push(kept);
    }
    let (value, mut slope) = loss(&x, &targets);
    let mut all = task.zeros();
    for at in (0..task.blocks.len()).rev() {
        let (before, gradients) = task.blocks[at].backward(&params[at], &saved[at], slope);
        slope = before;
        for (index, gradient) in gradients {
            let own = &mut all[at][if index == AGAIN { WEIGHT } else { index }];
            own.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += round(g) as f32);
        }
    }
    (value, all)
}

#[test]
fn mixed_types_are_those_of_a_model_made_by_hand() {
    let task = Task::new(mixed(), 30);
    let rounds: [(DType, Round); 2] =
        [(DType::BF16, |x| bf16::from_f32(x as f32).to_f64()), (DType::F16, |x| f16::from_f32(x as f32).to_f64())];
    for (dtype, round) in rounds {
        let policy = Policy::default().compute(dtype).reduce(DType::F32);
        let sharded = task.sharded(Company::of(2), &policy, |_, _, _| {});
        assert_eq!(sharded, by_hand(&task, round), "{dtype}");
    }
}

#[test]
fn replicas_begin_as_the_first_one() {
    let task = Task::new(mixed(), 1);
    Company::of(2).replicas(3).run(|groups, rank| {
        let mut model = task.shard(groups, Policy::default()).expect("a model");
        for param in model.owned().collect::<Vec<_>>() {
            model.shard_mut::<f32>(param).expect("a type").iter_mut().for_each(|x| *x += (rank / 2) as f32);
        }
        model.broadcast_replicas().expect("the first replica's");
        assert_eq!(task.collect(&model).expect("full parameters"), task.initial());
        assert!(model.waited() < std::time::Duration::from_secs(60));
    });
}
