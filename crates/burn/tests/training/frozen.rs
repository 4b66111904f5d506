//! Weights that are not trained are divided among ranks like those that are.

use burn::module::{Lora, Module};
use burn::tensor::{DType as Kind, Tensor, TensorData};
use burn_nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn_optim::{AdamWConfig, GradientsParams};
use phalanx_burn::{FullyShard, Policy, Reshard, Units};
use phalanx_comm::Threads;
use phalanx_core::{DType, Group};
use phalanx_fsdp::Class;

use crate::model::device;

const WIDTH: usize = 7;
const RANK: usize = 2;
const STEPS: usize = 4;
const ROWS: usize = 24;

/// Three layers that were trained before; of the first and the last two factors each are trained now.
fn adapted() -> Vec<Linear> {
    let layer = |at| {
        let layer = LinearConfig::new(WIDTH, WIDTH).with_bias(false).init(&device()).freeze();
        if at == 1 { layer } else { layer.apply_lora(Lora::new(RANK, 4.0)) }
    };
    (0..3).map(layer).collect()
}

fn forward(layer: &Linear, x: Tensor<2>) -> Tensor<2> {
    layer.forward(x).tanh()
}

fn rows(step: usize, rank: usize, ranks: usize) -> Tensor<2> {
    let own = ROWS / ranks;
    let value = |row: usize, at: usize| ((step * 31 + (rank * own + row) * 7 + at * 5) % 13) as f32 / 13.0 - 0.4;
    let values: Vec<f32> = (0..own).flat_map(|row| (0..WIDTH).map(move |at| value(row, at))).collect();
    Tensor::from_data(TensorData::new(values, [own, WIDTH]), &device())
}

fn alone(mut model: Vec<Linear>) -> Vec<f32> {
    let mut optimizer = AdamWConfig::new().init();
    let step = |step| {
        let x = model.iter().fold(rows(step, 0, 1), |x, layer| forward(layer, x));
        let loss = x.powf_scalar(2.0).mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model.clone(), gradients);
        loss.into_scalar::<f32>()
    };
    (0..STEPS).map(step).collect()
}

#[test]
fn training_beside_frozen_weights_comes_to_what_one_rank_comes_to() {
    let layers = adapted();
    let expected = alone(layers.clone());
    for (world, reshard) in [(1, Reshard::Yes), (2, Reshard::Yes), (3, Reshard::No), (8, Reshard::Yes)] {
        let ends = Threads::new(world).run(|group| {
            let (rank, ranks, mut units) = (group.rank(), group.size(), Units::new());
            let add = |(at, layer): (usize, &Linear)| units.add(format!("{at}"), layer.clone());
            let handles: Vec<_> = layers.iter().enumerate().map(add).collect();
            let mut model = FullyShard::new(group, Policy::default().reshard_after_forward(reshard), units)?;
            let (mut optimizer, mut losses) = (AdamWConfig::new().init(), vec![]);
            for step in 0..STEPS {
                let mut x = rows(step, rank, ranks);
                for unit in &handles {
                    x = model.run(*unit, x, forward)?;
                }
                let loss = x.powf_scalar(2.0).mean();
                model.backward(&loss)?;
                model.step(&mut optimizer, 1e-2)?;
                losses.push(loss.into_scalar::<f32>());
            }
            let names: Vec<_> = model.parts().iter().map(|part| part.name.as_str()).collect();
            assert_eq!(names, ["0.weight.lora.a", "0.weight.lora.b", "2.weight.lora.a", "2.weight.lora.b"]);
            let whole = model.module(handles[1])?.weight;
            assert!(!whole.is_require_grad());
            assert_eq!(whole.to_data(), layers[1].weight.to_data());
            Ok::<_, phalanx_core::Error>((losses, model.memory().of(Class::Sharded).current))
        });
        let ends: Vec<_> = ends.expect("a world").into_iter().map(|end| end.expect("no error")).collect();
        for (step, expected) in expected.iter().enumerate() {
            let mean = ends.iter().map(|(losses, _)| losses[step]).sum::<f32>() / world as f32;
            assert!(
                (mean - expected).abs() < 1e-5 * expected.abs(),
                "{world} ranks, step {step}: {mean}, not {expected}"
            );
        }
        // All that there is of the model is there once.
        let held: usize = ends.iter().map(|(_, held)| held).sum();
        assert_eq!(held, 4 * (3 * WIDTH * WIDTH + 2 * 2 * RANK * WIDTH), "{world} ranks");
    }
}

/// A frozen weight is the first rank's, keeps its type, is computed with in that of the policy, and is gathered in it.
#[test]
fn frozen_weights_of_another_type_are_held_in_it() {
    let ends = Threads::new(2).run(|group: Group| {
        let cast = |layer: Linear, kind: Kind| Linear { weight: layer.weight.map(|weight| weight.cast(kind)), ..layer };
        let wide = || LinearConfig::new(4, 4).with_bias(false).init(&device());
        let mut units = Units::new();
        let base = cast(wide(), Kind::BF16).freeze();
        let own = base.weight.to_data();
        let frozen = units.add("frozen", base);
        let trained = units.add("trained", wide());
        let mut model = FullyShard::new(group, Policy::default().compute(DType::BF16), units)?;
        assert_eq!(model.memory().of(Class::Sharded).current, (2 + 4) * 16 / 2);
        let x = Tensor::<2>::ones([2, 4], &device()).cast(Kind::BF16);
        let x = model.run(frozen, x, Linear::forward)?;
        let y = model.run(trained, x, Linear::forward)?;
        model.backward(&y.cast(Kind::F32).mean())?;
        model.step(&mut AdamWConfig::new().init(), 0.1)?;
        let types = [frozen, trained].map(|unit| model.module(unit).expect("a module").weight.dtype());
        Ok::<_, phalanx_core::Error>((types, own, model.module(frozen)?.weight.to_data()))
    });
    let ends: Vec<_> = ends.expect("a world").into_iter().map(|end| end.expect("no error")).collect();
    assert_ne!(ends[0].1, ends[1].1, "each rank begins with weights of its own");
    for (types, _, gathered) in &ends {
        assert_eq!((types, gathered), (&[Kind::BF16, Kind::F32], &ends[0].1));
    }
}

/// Running averages look like frozen weights, and are not: they stay whole and go on.
#[test]
fn running_averages_beside_frozen_weights_go_on() {
    let ends = Threads::new(2).run(|group: Group| {
        let (rank, mut units) = (group.rank(), Units::new());
        let norm: BatchNorm = BatchNormConfig::new(3).init(&device());
        let base: Linear = LinearConfig::new(3, 4).with_bias(false).init(&device());
        let unit = units.add_with("norm", (base.freeze(), norm), Reshard::No);
        let mut model = FullyShard::new(group, Policy::default(), units)?;
        // Of the weight, the factors and the offsets, which are divided by rows.
        let own = [2 * 4 + 2 + 2, 4 + 1 + 1][rank];
        assert_eq!(model.memory().of(Class::Sharded).current, 4 * own);
        let x = Tensor::<2>::ones([8, 3], &device()) * 5.0;
        for _step in 0..2 {
            model.run(unit, x.clone(), |(_, norm), x| norm.forward(x))?;
            model.forget();
        }
        let seen = model.module(unit)?.1.running_mean.value_sync();
        Ok::<_, phalanx_core::Error>(seen.into_data().try_into_vec::<f32>().expect("floats"))
    });
    for seen in ends.expect("a world") {
        let seen = seen.expect("no error");
        assert!(seen.iter().all(|mean| (mean - 0.95).abs() < 1e-5), "{seen:?}");
    }
}
