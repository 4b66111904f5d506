//! The whole model on every rank: averaged gradients train as one rank would.

use half::f16;
use phalanx_comm::Threads;
use phalanx_core::{DType, ErrorKind, Group, OpKind, Result};
use phalanx_fsdp::hooks::{Bf16, F16, GradientHook, Int8};
use phalanx_fsdp::{Class, Ddp, DdpOptions};

use crate::company::Company;
use crate::model::{AGAIN, GAIN, WEIGHT, loss, mixed};
use crate::train::{Outcome, Task, descend};

/// The trained parameters of the model, in the order of forward: their block and number.
fn trained(task: &Task) -> Vec<(usize, usize)> {
    let numbered = task.blocks.iter().enumerate();
    let own = numbered.flat_map(|(at, block)| {
        let trains = [block.trains_weight, block.trains_bias, true];
        (0..=GAIN).filter(move |index| trains[*index]).map(move |index| (at, index))
    });
    own.collect()
}

fn ddp(task: &Task, group: Group, options: DdpOptions) -> Ddp {
    let params = trained(task);
    let params: Vec<_> =
        params.iter().map(|(at, index)| ("param", task.blocks[*at].lens()[*index], DType::F32)).collect();
    Ddp::new(group, &params, options).expect("a model")
}

/// One forward and one backward of a part of a step's samples, with gradients handed over as they come.
fn pass(task: &Task, ddp: &mut Ddp, full: &[Vec<Vec<f32>>], step: usize, [part, parts]: [usize; 2]) -> Result<f64> {
    let wide: Vec<Vec<Vec<f64>>> = full
        .iter()
        .map(|block| block.iter().map(|param| param.iter().map(|x| f64::from(*x)).collect()).collect())
        .collect();
    let (mut x, targets) = task.batch(step, part, parts);
    let mut saved = Vec::new();
    for (block, params) in task.blocks.iter().zip(&wide) {
        let (y, kept) = block.forward(params, x);
        x = y;
        saved.push(kept);
    }
    let (value, mut slope) = loss(&x, &targets);
    slope.iter_mut().for_each(|d| *d /= task.micros as f64);
    let params = trained(task);
    for at in (0..task.blocks.len()).rev() {
        let (before, mut gradients) = task.blocks[at].backward(&wide[at], &saved[at], slope);
        slope = before;
        if let Some(twice) = gradients.iter().position(|(index, _)| *index == AGAIN) {
            let (_, again) = gradients.remove(twice);
            let weight = gradients.iter_mut().find(|(index, _)| *index == WEIGHT).expect("a trained weight");
            weight.1.iter_mut().zip(again).for_each(|(sum, g)| *sum += g);
        }
        for (index, gradient) in gradients {
            let param = params.iter().position(|other| *other == (at, index)).expect("a trained one");
            ddp.gradient(param, &gradient.iter().map(|g| *g as f32).collect::<Vec<_>>())?;
        }
    }
    ddp.finish_backward()?;
    Ok(value)
}

fn train(task: &Task, world: usize, options: &DdpOptions, prepare: impl Fn(&mut Ddp, usize, usize) + Sync) -> Outcome {
    let mut ends = Company::of(world).run(|groups, rank| {
        let mut ddp = ddp(task, groups.shard().clone(), options.clone());
        let (mut params, mut speeds) = (task.initial(), task.zeros());
        if rank > 0 {
            params.iter_mut().flatten().flatten().for_each(|x| *x += 1.0);
        }
        for param in params.iter_mut().flatten() {
            ddp.broadcast(param).expect("the first rank's");
        }
        let mut losses = Vec::new();
        for step in 0..task.steps {
            let mut value = [0.0];
            for micro in 0..task.micros {
                prepare(&mut ddp, step, micro);
                let part = [micro * world + rank, task.micros * world];
                value[0] += pass(task, &mut ddp, &params, step, part).expect("a pass") / task.micros as f64;
            }
            for (param, (at, index)) in trained(task).into_iter().enumerate() {
                let gradient = ddp.averaged::<f32>(param).expect("a type").expect("a gradient");
                descend(&mut params[at][index], gradient, &mut speeds[at][index]);
            }
            groups.shard().all_reduce(&mut value, phalanx_core::ReduceOp::Avg).expect("a sum");
            losses.push(value[0]);
        }
        Outcome { losses, params }
    });
    let first = ends.swap_remove(0);
    assert!(ends.iter().all(|other| *other == first), "{world} ranks");
    first
}

#[test]
fn every_world_trains_as_one_rank_alone() {
    let task = Task::new(mixed(), 50);
    let alone = task.alone();
    for world in 1..=4 {
        let small = DdpOptions::default().first_byte_len(20).bucket_byte_len(60);
        for options in [DdpOptions::default(), small] {
            let apart = train(&task, world, &options, |_, _, _| {}).apart(&alone);
            assert!(apart <= 1e-6, "{world} ranks, {options:?}: {apart:e}");
        }
    }
}

#[test]
fn micro_batches_without_sync_add_up() {
    let task = Task::new(mixed(), 50).micros(3);
    let options = DdpOptions::default().bucket_byte_len(60);
    let apart = train(&task, 3, &options, |ddp, _, micro| ddp.set_sync(micro == 2)).apart(&task.alone());
    assert!(apart <= 1e-6, "{apart:e}");
}

#[test]
fn hooks_train_as_well() {
    let task = Task::new(mixed(), 200);
    let last = |outcome: &Outcome| outcome.losses[190..].iter().sum::<f64>();
    let plain = last(&train(&task, 2, &DdpOptions::default(), |_, _, _| {}));
    let hooks: [fn() -> Box<dyn GradientHook>; 3] = [|| Box::new(F16), || Box::new(Bf16), || Box::new(Int8::default())];
    for hook in hooks {
        let outcome = train(&task, 2, &DdpOptions::default(), |ddp, step, _| {
            if step == 0 {
                ddp.set_hook(Some(hook())).expect("gradients of f32");
            }
        });
        let end = last(&outcome);
        assert!((end / plain - 1.0).abs() < 0.02, "{:?}: {end} for {plain}", hook());
    }
}

#[test]
fn a_bucket_travels_as_soon_as_it_is_full() {
    Company::of(2).run(|groups, _| {
        let group = groups.shard().clone();
        let params = [("a", 4, DType::F32), ("b", 4, DType::F32), ("c", 2, DType::F32)];
        let options = DdpOptions::default().first_byte_len(8).bucket_byte_len(16);
        let mut ddp = Ddp::new(group.clone(), &params, options).expect("a model");
        let sent = || group.recorder().records().iter().filter(|record| record.op == OpKind::AllReduce).count();
        assert_eq!(ddp.bucket_count(), 3);
        ddp.gradient(1, &[1.0_f32; 4]).expect("the second bucket");
        // All ranks send buckets in one order, whatever comes first.
        assert_eq!(sent(), 0);
        ddp.gradient(2, &[1.0_f32; 2]).expect("the first bucket");
        assert_eq!(sent(), 2);
        let error = ddp.gradient(2, &[1.0_f32; 2]).expect_err("twice");
        assert_eq!(error.to_string(), "gradient: param is \"c\" once more, must come once a backward");
        let error = ddp.finish_backward().expect_err("one is missing");
        assert_eq!(error.to_string(), "finish_backward: params is a, must have gradients");
        assert_eq!(ddp.unused(), [0]);
        ddp.gradient(0, &[3.0_f32; 4]).expect("the last bucket");
        ddp.finish_backward().expect("the end");
        assert_eq!(ddp.averaged::<f32>(0), Ok(Some(&[3.0; 4][..])));
        let odd = [("a", 1, DType::I32), ("b", usize::MAX, DType::F32)];
        let refused = odd.map(|param| Ddp::new(group.clone(), &[param], DdpOptions::default()).expect_err("a refusal"));
        assert!(refused[0].to_string().contains("i32 for \"a\"") && refused[1].to_string().contains("for \"b\""));
        assert!(ddp.averaged::<f64>(0).is_err() && ddp.averaged::<f32>(3).is_err());
    });
}

#[test]
fn what_is_unused_counts_as_zero_where_it_may() {
    Company::of(2).run(|groups, rank| {
        let params = [("a", 2, DType::F32), ("b", 2, DType::F32)];
        let options = DdpOptions::default().first_byte_len(8).bucket_byte_len(8).allow_unused(true);
        let mut ddp = Ddp::new(groups.shard().clone(), &params, options).expect("a model");
        for _again in 0..2 {
            ddp.gradient(rank, &[4.0_f32; 2]).expect("one of the two");
            ddp.finish_backward().expect("the end");
            assert_eq!(
                [0, 1].map(|param| ddp.averaged::<f32>(param)),
                [Ok(Some(&[2.0; 2][..])), Ok(Some(&[2.0; 2][..]))]
            );
        }
        ddp.finish_backward().expect("a backward that brought nothing");
        assert_eq!(ddp.averaged::<f32>(1), Ok(Some(&[0.0; 2][..])));
    });
}

#[test]
fn gradients_of_a_backward_that_is_given_up_leave_nothing_behind() {
    Company::of(2).run(|groups, rank| {
        let params = [("a", 2, DType::F32), ("b", 2, DType::F32), ("c", 2, DType::F32)];
        let options = DdpOptions::default().first_byte_len(8).bucket_byte_len(16).allow_unused(true);
        let mut ddp = Ddp::new(groups.shard().clone(), &params, options).expect("a model");
        for _again in 0..2 {
            ddp.set_sync(false);
            for param in [2, 1, 0] {
                ddp.gradient(param, &[100.0_f32; 2]).expect("one that is bad");
            }
            ddp.finish_backward().expect("the end");
            ddp.zero_gradients();
            assert_eq!(ddp.unused(), [0, 1, 2]);
            ddp.set_sync(true);
            // Nothing comes for the first, which travels with the second, and for the last, which travels alone.
            ddp.gradient(1, &[rank as f32; 2]).expect("a good one");
            ddp.finish_backward().expect("the end");
            let averaged = [0, 1, 2].map(|param| ddp.averaged::<f32>(param).expect("a type").expect("a gradient")[0]);
            assert_eq!(averaged, [0.0, 0.5, 0.0]);
            ddp.zero_gradients();
            assert_eq!(ddp.averaged::<f32>(1), Ok(None));
        }
    });
}

/// Whether a hook packs what travels or not, the first bucket is on its way when the backward is given up.
#[test]
fn the_next_backward_begins_anew_after_one_that_is_given_up() {
    for hook in [false, true] {
        Company::of(2).run(|groups, rank| {
            let params = [("a", 4, DType::F32), ("b", 2, DType::F32)];
            let mut ddp =
                Ddp::new(groups.shard().clone(), &params, DdpOptions::default().first_byte_len(8)).expect("a model");
            ddp.set_hook(hook.then(|| Box::new(Bf16) as Box<dyn GradientHook>)).expect("gradients of f32");
            for round in 0..3 {
                ddp.gradient(1, &[7.0_f32; 2]).expect("the first bucket");
                if round == 1 {
                    ddp.finish_backward().expect_err("one is missing");
                }
                ddp.zero_gradients();
            }
            ddp.gradient(1, &[2.0 * rank as f32; 2]).expect("the first bucket again");
            ddp.gradient(0, &[4.0_f32; 4]).expect("the last bucket");
            ddp.finish_backward().expect("the end");
            assert_eq!(ddp.averaged::<f32>(0), Ok(Some(&[4.0; 4][..])));
            assert_eq!(ddp.averaged::<f32>(1), Ok(Some(&[1.0; 2][..])));
            assert_eq!(ddp.memory().of(Class::Reducing).current, 0, "packed by a hook: {hook}");
        });
    }
}

/// A bucket that came together on one rank alone waits there for its peer's, which is of the next backward.
#[test]
fn gradients_that_were_given_up_are_not_averaged_with_those_of_the_next_backward() {
    for hook in [false, true] {
        Company::of(2).run(|groups, rank| {
            let params = [("a", 2, DType::F32), ("b", 2, DType::F32)];
            let options = DdpOptions::default().allow_unused(true);
            let mut ddp = Ddp::new(groups.shard().clone(), &params, options).expect("a model");
            ddp.set_hook(hook.then(|| Box::new(Bf16) as Box<dyn GradientHook>)).expect("gradients of f32");
            ddp.gradient(1, &[100.0_f32; 2]).expect("a gradient");
            if rank == 0 {
                ddp.gradient(0, &[100.0_f32; 2]).expect("the last gradient");
            }
            ddp.zero_gradients();
            let ended = ddp.gradient(0, &[2.0_f32; 2]).and_then(|()| ddp.gradient(1, &[2.0_f32; 2]));
            let told = ended.and_then(|()| ddp.finish_backward()).expect_err("another backward");
            assert!(told.kind() == ErrorKind::Desync && told.to_string().contains("with unit"), "{told}");
        });
    }
}

#[test]
fn a_backward_ends_with_the_sync_that_it_began_with() {
    Company::of(2).run(|groups, _| {
        let params = [("a", 4, DType::F32), ("b", 2, DType::F32)];
        let options = DdpOptions::default().first_byte_len(8);
        let mut ddp = Ddp::new(groups.shard().clone(), &params, options).expect("a model");
        let pass = |ddp: &mut Ddp, value: f32, between: Option<bool>| {
            ddp.gradient(1, &[value; 2]).expect("the first bucket");
            between.into_iter().for_each(|syncs| ddp.set_sync(syncs));
            ddp.gradient(0, &[value; 4]).expect("the last bucket");
            ddp.finish_backward().expect("the end");
            [0, 1].map(|param| ddp.averaged::<f32>(param).expect("a type").map(|averaged| averaged[0]))
        };
        // The first bucket is on its way already.
        assert_eq!(pass(&mut ddp, 1.0, Some(false)), [Some(1.0); 2]);
        ddp.set_sync(true);
        assert_eq!(pass(&mut ddp, 2.0, None), [Some(2.0); 2]);
        // None is, and none of them goes.
        ddp.set_sync(false);
        assert_eq!(pass(&mut ddp, 3.0, Some(true)), [None; 2]);
        assert_eq!(pass(&mut ddp, 4.0, Some(false)), [Some(7.0); 2]);
        // What is given up is no backward any more.
        assert_eq!(pass(&mut ddp, 5.0, Some(true)), [None; 2]);
        ddp.gradient(1, &[6.0_f32; 2]).expect("the first bucket");
        ddp.set_sync(false);
        ddp.zero_gradients();
        assert_eq!(pass(&mut ddp, 8.0, None), [None; 2]);
    });
}

#[test]
fn a_hook_stays_while_gradients_are_on_their_way() {
    Company::of(2).run(|groups, _| {
        let params = [("a", 4, DType::F32), ("b", 2, DType::F32)];
        let options = DdpOptions::default().first_byte_len(8);
        let mut ddp = Ddp::new(groups.shard().clone(), &params, options).expect("a model");
        ddp.set_hook(Some(Box::new(Bf16))).expect("nothing is on its way");
        ddp.gradient(1, &[2.0_f32; 2]).expect("the first bucket");
        for hook in [None, Some(Box::new(F16) as Box<dyn GradientHook>)] {
            let refused = ddp.set_hook(hook).expect_err("the first bucket is on its way");
            assert!(refused.kind() == ErrorKind::Usage && refused.to_string().contains("must be awaited"), "{refused}");
        }
        ddp.gradient(0, &[4.0_f32; 4]).expect("the last bucket");
        ddp.finish_backward().expect("the end");
        assert_eq!(ddp.averaged::<f32>(1), Ok(Some(&[2.0; 2][..])));
        ddp.set_hook(None).expect("all have come");
    });
}

#[test]
fn sums_of_a_short_exponent_neither_overflow_nor_vanish() {
    for (len, hosts) in [3, 5000]
        .into_iter()
        .flat_map(|len| [[0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]].map(|hosts| (len, hosts)))
    {
        let rank = |group: Group| {
            let mut ddp = Ddp::new(group, &[("a", len, DType::F16)], DdpOptions::default()).expect("a model");
            // Of few digits, so that no sum is rounded; eight of the first are beyond the type.
            for gradient in [f16::from_f32(20480.0), f16::MIN_POSITIVE] {
                ddp.gradient(0, &vec![gradient; len]).expect("a gradient");
                ddp.finish_backward().expect("the end");
                assert_eq!(ddp.averaged::<f16>(0), Ok(Some(&vec![gradient; len][..])), "{hosts:?}");
            }
        };
        Threads::new(8).hosts(hosts.to_vec()).run(rank).expect("a world");
    }
}
