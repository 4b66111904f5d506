//! What else is done with a model: ways through its units, memory, norms, checkpoints, evaluation.

use burn::tensor::{Distribution, Tensor};
use burn_nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn_optim::{AdamWConfig, GradientsParams, SgdConfig};
use phalanx_burn::{FullyShard, Policy, Reshard, Unit, UnitOptions, Units};
use phalanx_checkpoint::{Checkpoint, Piece, Progress, Saver};
use phalanx_comm::Threads;
use phalanx_core::{DType, Group, OpKind, Result};

use crate::model::device;
use crate::parity::Sharded;

fn linear(from: usize, to: usize) -> Linear {
    LinearConfig::new(from, to).init(&device())
}

fn shard(group: Group, policy: Policy, layers: &[Linear]) -> Result<(FullyShard, Vec<Unit<Linear>>)> {
    let mut units = Units::new();
    let add = |(at, layer): (usize, &Linear)| units.add(format!("{at}"), layer.clone());
    let handles = layers.iter().enumerate().map(add).collect();
    Ok((FullyShard::new(group, policy, units)?, handles))
}

/// One unit's output goes into three others, one of which is left out of the loss; another returns two things.
#[test]
fn gradients_find_their_way_through_units_that_fork() {
    for reshard in [Reshard::Yes, Reshard::No] {
        let check = |group| {
            let layers = [linear(3, 5), linear(5, 5), linear(5, 5), linear(5, 5), linear(5, 2)];
            let x = Tensor::<2>::random([6, 3], Distribution::Default, &device());
            let trunk = layers[0].forward(x.clone()).tanh();
            let (left, right) = (layers[1].forward(trunk.clone()), layers[2].forward(trunk));
            let loss = (layers[4].forward(left.clone() * right) + layers[4].forward(left)).powf_scalar(2.0).mean();
            let expected = GradientsParams::from_grads(loss.backward(), &layers.to_vec());

            let (mut model, units) = shard(group, Policy::default().reshard_after_forward(reshard), &layers)?;
            let trunk = model.run(units[0], x, |layer, x| layer.forward(x).tanh())?;
            let (left, again) = model.run(units[1], trunk.clone(), |layer, x| {
                let y = layer.forward(x);
                (y.clone(), vec![y])
            })?;
            let right = model.run(units[2], trunk.clone(), Linear::forward)?;
            model.run(units[3], trunk, Linear::forward)?;
            let forked = |layer: &Linear, (left, right, again): (Tensor<2>, Tensor<2>, Vec<Tensor<2>>)| {
                layer.forward(left * right) + layer.forward(again[0].clone())
            };
            let loss = model.run(units[4], (left, right, again), forked)?.powf_scalar(2.0).mean();
            model.backward(&loss)?;
            assert_eq!(model.unused(), ["3.weight", "3.bias"]);
            check_gradients(&mut model, &layers, &expected)
        };
        Threads::new(1).run(check).expect("a world").remove(0).expect("no error");
    }
}

/// That a model of one rank has these gradients of its layers.
fn check_gradients(model: &mut FullyShard, layers: &[Linear], expected: &GradientsParams) -> Result<()> {
    let parts = model.parts().to_vec();
    model.update(|at, _, gradient| {
        let (name, gradient) = (parts[at].name.as_str(), gradient.expect("a gradient"));
        let layer = &layers[name[..1].parse::<usize>().expect("a number")];
        let expected = match &layer.bias {
            Some(bias) if name.ends_with("bias") => expected.get::<1>(bias.id).map(Tensor::into_data),
            _ => expected.get::<2>(layer.weight.id).map(Tensor::into_data),
        };
        let expected = expected.map_or(vec![0.0; gradient.len()], |data| data.try_into_vec().expect("floats"));
        let far = gradient.iter().zip(&expected).map(|(got, expected)| (got - expected).abs());
        assert!(far.fold(0.0, f32::max) < 1e-6, "{name}: {gradient:?}, not {expected:?}");
    })
}

/// What a unit returned goes into the next two ways, in one input.
#[test]
fn gradients_go_through_a_skip_connection_that_is_part_of_the_input() {
    for reshard in [Reshard::Yes, Reshard::No] {
        let check = |group| {
            let layers = [linear(3, 5), linear(5, 5), linear(5, 2)];
            let x = Tensor::<2>::random([6, 3], Distribution::Default, &device());
            let skip = layers[0].forward(x.clone()).tanh();
            let y = layers[1].forward(skip.clone()).tanh() + skip;
            let loss = layers[2].forward(y).powf_scalar(2.0).mean();
            let expected = GradientsParams::from_grads(loss.backward(), &layers.to_vec());

            let (mut model, units) = shard(group, Policy::default().reshard_after_forward(reshard), &layers)?;
            let skip = model.run(units[0], x, |layer, x| layer.forward(x).tanh())?;
            let added = |layer: &Linear, (x, skip): (Tensor<2>, Tensor<2>)| layer.forward(x).tanh() + skip;
            let y = model.run(units[1], (skip.clone(), skip), added)?;
            let loss = model.run(units[2], y, Linear::forward)?.powf_scalar(2.0).mean();
            model.backward(&loss)?;
            check_gradients(&mut model, &layers, &expected)
        };
        Threads::new(1).run(check).expect("a world").remove(0).expect("no error");
    }
}

/// What stands in a module twice is one parameter, and stays one.
#[test]
fn a_layer_that_is_there_twice_gets_both_gradients() {
    let train = |group, is_twice: bool| {
        let mut layer = LinearConfig::new(4, 4).with_bias(false).init(&device());
        layer.weight = layer.weight.map(|weight| (weight.zeros_like() + 0.5).detach().require_grad());
        let layers = if is_twice { vec![layer.clone(), layer] } else { vec![layer] };
        let mut units = Units::new();
        let unit = units.add("layers", layers);
        let mut model = FullyShard::new(group, Policy::default(), units)?;
        let mut optimizer = SgdConfig::new().init();
        for _step in 0..2 {
            let forward = |layers: &Vec<Linear>, x| layers[layers.len() - 1].forward(layers[0].forward(x).tanh());
            let loss = model.run(unit, Tensor::<2>::ones([2, 4], &device()), forward)?.mean();
            model.backward(&loss)?;
            model.step(&mut optimizer, 0.1)?;
        }
        let layers = model.module(unit)?;
        let weights = layers.iter().map(|layer| layer.weight.to_data().try_into_vec::<f32>().expect("floats"));
        Ok::<_, phalanx_core::Error>(weights.collect::<Vec<_>>())
    };
    let ends =
        Threads::new(2).run(|group| Ok::<_, phalanx_core::Error>([train(group.clone(), false)?, train(group, true)?]));
    for end in ends.expect("a world") {
        let [once, twice] = end.expect("no error");
        assert_eq!(twice, [once[0].clone(), once[0].clone()]);
    }
}

/// A rank that begins anew has its rows from a checkpoint, and what its optimizer remembered from a file of its own.
#[test]
fn an_optimizer_goes_on_from_what_it_has_saved() {
    let losses = |is_stopped: bool| {
        let ends = Threads::new(2).run(|group| {
            let (rank, ranks) = (group.rank(), group.size());
            let mut sharded = Sharded::new(group.clone(), Policy::default())?;
            let mut optimizer = AdamWConfig::new().init();
            let mut losses = vec![];
            for step in 0..6 {
                if is_stopped && step == 3 {
                    let (mut values, saved) = (vec![], optimizer.into_bytes().expect("a record"));
                    sharded.model.look(|_, own| values.push(own.to_vec()))?;
                    sharded = Sharded::new(group.clone(), Policy::default())?;
                    sharded.model.update(|at, own, _| own.copy_from_slice(&values[at]))?;
                    optimizer = AdamWConfig::new().init().from_bytes(saved).expect("a record");
                }
                losses.push(sharded.pass(step, rank, ranks, 1.0)?);
                sharded.model.step(&mut optimizer, 0.01)?;
            }
            Ok::<_, phalanx_core::Error>(losses)
        });
        ends.expect("a world").remove(0).expect("no error")
    };
    assert_eq!(losses(true), losses(false));
}

/// A unit that has found nothing returns tensors of no element.
#[test]
fn an_output_without_elements_is_the_same_when_the_unit_is_run_again() {
    let check = |group| {
        let (mut model, units) = shard(group, Policy::default(), &[linear(4, 4), linear(4, 1)])?;
        let found = |layer: &Linear, x: Tensor<2>| (layer.forward(x), Tensor::<1>::zeros([0], &device()));
        let (y, none) = model.run(units[0], Tensor::ones([2, 4], &device()), found)?;
        assert_eq!(none.dims(), [0]);
        let loss = model.run(units[1], y, Linear::forward)?.mean();
        model.backward(&loss)
    };
    Threads::new(2).run(check).expect("a world").into_iter().for_each(|end| end.expect("no error"));
}

/// What a unit returns may be of several types.
#[test]
fn outputs_of_two_types_have_gradients() {
    let check = |group| {
        let (mut model, units) = shard(group, Policy::default().compute(DType::BF16), &[linear(4, 4), linear(4, 4)])?;
        let x = || Tensor::<2>::ones([2, 4], &device());
        let half = |layer: &Linear, x: Tensor<2>| layer.forward(x.cast(burn::tensor::DType::BF16));
        let both = move |layer: &Linear, x: Tensor<2>| {
            let y = half(layer, x);
            (y.clone(), y.cast(burn::tensor::DType::F32).powf_scalar(2.0).mean())
        };
        let (y, penalty) = model.run(units[0], x(), both)?;
        let loss = model.run(units[1], y, Linear::forward)?.cast(burn::tensor::DType::F32).mean() + penalty;
        model.backward(&loss)?;
        assert_eq!(model.unused(), Vec::<String>::new());
        model.step(&mut SgdConfig::new().init(), 0.1)
    };
    Threads::new(2).run(check).expect("a world").into_iter().for_each(|end| end.expect("no error"));
}

/// A norm, and its running averages, in `f32` beside layers in `bf16`.
#[test]
fn a_unit_may_be_computed_with_in_a_type_of_its_own() {
    use burn::tensor::DType as Kind;
    let check = |group: Group| {
        let mut units = Units::new();
        let first = units.add("first", linear(4, 4));
        let norm: BatchNorm = BatchNormConfig::new(4).init(&device());
        let norm = units.add_with("norm", norm, UnitOptions::default().compute(DType::F32).reduce(DType::F64));
        let last = units.add("last", linear(4, 1));
        let mut model = FullyShard::new(group.clone(), Policy::default().compute(DType::BF16), units)?;
        let layer = |layer: &Linear, x: Tensor<2>| {
            assert_eq!(layer.weight.val().dtype(), Kind::BF16);
            layer.forward(x.cast(Kind::BF16))
        };
        let x = Tensor::<2>::random([8, 4], Distribution::Default, &device());
        let y = model.run(first, x, layer)?;
        let y = model.run(norm, y, |norm: &BatchNorm, y: Tensor<2>| {
            assert_eq!(norm.gamma.val().dtype(), Kind::F32);
            norm.forward(y.cast(Kind::F32))
        })?;
        let loss = model.run(last, y, layer)?.cast(Kind::F32).mean();
        model.backward(&loss)?;
        assert_eq!(model.unused(), Vec::<String>::new());
        let records = group.recorder().records();
        let reduced = records.iter().filter(|record| record.op == OpKind::ReduceScatter);
        assert_eq!(reduced.map(|record| record.dtype).collect::<Vec<_>>(), [DType::F32, DType::F64, DType::F32]);
        model.step(&mut SgdConfig::new().init(), 0.1)
    };
    Threads::new(2).run(check).expect("a world").into_iter().for_each(|end| end.expect("no error"));
}

#[test]
fn a_rank_holds_its_rows_and_frees_the_rest() {
    for world in 1..=4 {
        let held = Threads::new(world).run(|group| {
            let layers = [linear(8, 12), linear(12, 12), linear(12, 12), linear(12, 1)];
            let (mut model, units) = shard(group, Policy::default(), &layers)?;
            for _step in 0..2 {
                let mut x = Tensor::<2>::ones([2, 8], &device());
                for unit in &units {
                    x = model.run(*unit, x, Linear::forward)?;
                }
                model.backward(&x.mean())?;
                model.step(&mut SgdConfig::new().init(), 0.1)?;
            }
            let own: usize = model.parts().iter().map(|part| 4 * part.elements.len()).sum();
            let memory = model.memory();
            assert_eq!(memory.of(phalanx_fsdp::Class::Sharded).current, own);
            assert_eq!(memory.of(phalanx_fsdp::Class::Gradients).current, 0);
            Ok::<_, phalanx_core::Error>(own)
        });
        let held: usize = held.expect("a world").into_iter().map(|own| own.expect("no error")).sum();
        assert_eq!(held, 4 * (8 * 12 + 12 + 2 * (12 * 12 + 12) + 12 + 1), "world {world}");
    }
}

#[test]
fn norms_are_those_of_all_rows() {
    let clipped = |world: usize| {
        let norms = Threads::new(world).run(|group| {
            let (rank, ranks) = (group.rank(), group.size());
            let mut sharded = Sharded::new(group, Policy::default())?;
            sharded.pass(0, rank, ranks, 1.0)?;
            let norm = sharded.model.clip(1e-2)?;
            Ok::<_, phalanx_core::Error>([norm, sharded.model.clip(1e-2)?])
        });
        norms.expect("a world").into_iter().map(|norms| norms.expect("no error")).collect::<Vec<_>>()
    };
    let [alone, after] = clipped(1)[0];
    assert!(alone > 1e-2 && (after - 1e-2).abs() < 1e-6, "{alone}, {after}");
    for norms in clipped(3) {
        assert!((norms[0] - alone).abs() < 1e-4 * alone && (norms[1] - 1e-2).abs() < 1e-6, "{norms:?}, not {alone}");
    }
}

/// Running averages are each rank's own, begin as the first rank's, and are in the module that is taken out.
#[test]
fn what_is_not_trained_stays_whole_and_goes_on() {
    let ends = Threads::new(2).run(|group| {
        let rank = group.rank();
        let norm: BatchNorm = BatchNormConfig::new(3).init(&device());
        let x = |scale: f32| Tensor::<2>::random([64, 3], Distribution::Default, &device()) * scale;
        if rank == 1 {
            // What it has seen before is forgotten.
            norm.forward(x(100.0));
        }
        let mut units = Units::new();
        let unit = units.add("norm", norm);
        let mut model = FullyShard::new(group, Policy::default(), units)?;
        for _step in 0..2 {
            let y = model.run(unit, x(1.0), |norm, x| norm.forward(x))?;
            model.backward(&y.mean())?;
            model.zero_gradients();
        }
        let seen = model.module(unit)?.running_mean.value_sync();
        model.set_training(false);
        let y = model.run(unit, x(1.0), |norm, x| norm.forward(x))?;
        assert!(!y.is_autodiff());
        Ok::<_, phalanx_core::Error>(seen.into_data().try_into_vec::<f32>().expect("floats"))
    });
    for seen in ends.expect("a world") {
        let seen = seen.expect("no error");
        assert!(seen.iter().all(|mean| (0.02..0.3).contains(mean)), "{seen:?}");
    }
}

/// Also in a unit whose backward does not come at once, which would be run again.
#[test]
fn running_averages_see_each_batch_once() {
    let ends = Threads::new(2).run(|group| {
        let mut units = Units::new();
        let norm: BatchNorm = BatchNormConfig::new(3).init(&device());
        let (norm, last) = (units.add("norm", norm), units.add("last", linear(3, 1)));
        let mut model = FullyShard::new(group, Policy::default(), units)?;
        let x = Tensor::<2>::ones([8, 3], &device()) * 5.0;
        let y = model.run(norm, x, |norm, x| norm.forward(x))?;
        let loss = model.run(last, y, Linear::forward)?.mean();
        model.backward(&loss)?;
        let seen = model.module(norm)?.running_mean.value_sync();
        Ok::<_, phalanx_core::Error>(seen.into_data().try_into_vec::<f32>().expect("floats"))
    });
    for seen in ends.expect("a world") {
        let seen = seen.expect("no error");
        assert!(seen.iter().all(|mean| (mean - 0.5).abs() < 1e-5), "{seen:?}");
    }
}

#[test]
fn another_number_of_ranks_goes_on_from_a_checkpoint() {
    let root = std::env::temp_dir().join(format!("phalanx-burn-{}", std::process::id()));
    let losses = |world: usize, is_second: bool| {
        let root = &root;
        let ends = Threads::new(world).run(move |group| {
            let (rank, ranks) = (group.rank(), group.size());
            let mut sharded = Sharded::new(group.clone(), Policy::default()).expect("a model");
            let parts = sharded.model.parts().to_vec();
            if is_second {
                let mut saved = Checkpoint::latest(root).expect("a directory").expect("a checkpoint");
                let load = |at: usize, values: &mut [f32], _: Option<&[f32]>| {
                    let own = saved.floats(&parts[at].name, &parts[at].shape, parts[at].elements.clone());
                    values.copy_from_slice(&own.expect("saved"));
                };
                sharded.model.update(load).expect("loaded");
            }
            let mut optimizer = SgdConfig::new().init();
            let mut losses = vec![];
            for step in if is_second { 3..6 } else { 0..6 } {
                if step == 3 && !is_second {
                    let mut pieces = vec![];
                    let look = |at: usize, values: &[f32]| {
                        pieces.push(Piece::floats(&parts[at].name, &parts[at].shape, parts[at].elements.start, values));
                    };
                    sharded.model.look(look).expect("values");
                    let mut saver = Saver::new(root).group(group.clone());
                    saver.save(3, pieces, Progress::new()).expect("begun");
                    saver.finish().expect("saved");
                }
                losses.push(sharded.pass(step, rank, ranks, 1.0).expect("a pass"));
                sharded.model.step(&mut optimizer, 0.1).expect("a step");
            }
            losses
        });
        let ends = ends.expect("a world");
        let mean = |step: usize| ends.iter().map(|losses| losses[step]).sum::<f32>() / world as f32;
        (0..ends[0].len()).map(mean).collect::<Vec<f32>>()
    };
    let (whole, rest) = (losses(2, false), losses(3, true));
    std::fs::remove_dir_all(&root).expect("removed");
    let near = |(one, other): (&f32, &f32)| (one - other).abs() < 1e-5 * one.abs();
    assert!(whole[3..].iter().zip(&rest).all(near), "{rest:?} after {whole:?}");
}
