//! Models of any shape: uneven, scalar and smaller than the world, frozen, and used by several units.

use candle_core::{Device, Module, Result, Tensor, Var};
use phalanx_candle::ops::linear;
use phalanx_candle::{Ddp, Error, FullyShard, Model, Optimizer, Policy, Reshard, Sgd, Single, Strategy, Unit};
use phalanx_core::{Group, ReduceOp};

use crate::company::Company;
use crate::training::assert_equal;

/// Divided among one to four ranks.
const ROWS: usize = 24;
const STEPS: usize = 50;
const RATE: f64 = 0.1;

/// `tanh(x w^T + b) g`, where `g` is a scalar. Backwards the weight may stand the other way round.
#[derive(Clone)]
struct Layer {
    weight: Var,
    is_turned: bool,
    bias: Var,
    gain: Var,
    is_frozen: [bool; 3],
}

impl Module for Layer {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = if self.is_turned { x.matmul(&self.weight)? } else { linear(x, &self.weight)? };
        x.broadcast_add(&self.bias)?.tanh()?.broadcast_mul(&self.gain)
    }
}

fn draw_tensor(draw: &mut fastrand::Rng, shape: &[usize]) -> Tensor {
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| draw.f32() * 1.6 - 0.8).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).expect("values")
}

/// Layers of any widths; what is used by several of them stands in all of them.
fn layers(seed: u64) -> Vec<Layer> {
    let draw = &mut fastrand::Rng::with_seed(seed);
    let mut layers: Vec<Layer> = vec![];
    let mut width = draw.usize(1..8);
    for _ in 0..draw.usize(2..5) {
        let fits = |layer: &&Layer| layer.weight.dims()[0] == width && !layer.is_turned;
        let shared = layers.iter().rfind(fits).filter(|_| draw.bool()).cloned();
        let var = |draw: &mut fastrand::Rng, shape: &[usize]| {
            Var::from_tensor(&draw_tensor(draw, shape)).expect("a variable")
        };
        let next = draw.usize(1..8);
        let (weight, is_turned) = match &shared {
            Some(layer) => (layer.weight.clone(), true),
            None => (var(draw, &[next, width]), false),
        };
        width = weight.dims()[usize::from(is_turned)];
        let mut is_frozen = [(); 3].map(|()| draw.u8(..4) == 0);
        let mut gain = Var::from_tensor(&Tensor::new(1.5_f32, &Device::Cpu).expect("a scalar")).expect("a variable");
        if let Some(layer) = &shared {
            is_frozen[0] = layer.is_frozen[0];
            if draw.bool() {
                (gain, is_frozen[2]) = (layer.gain.clone(), layer.is_frozen[2]);
            }
        }
        layers.push(Layer { weight, is_turned, bias: var(draw, &[width]), gain, is_frozen });
    }
    layers
}

fn units(layers: &[Layer]) -> Vec<Unit> {
    let unit = |(at, layer): (usize, &Layer)| {
        let unit = Unit::new(format!("layer {at}"), layer.clone()).recompute(at % 2 == 1);
        let vars = [("weight", &layer.weight), ("bias", &layer.bias), ("gain", &layer.gain)];
        vars.into_iter().zip(layer.is_frozen).fold(unit, |unit, ((name, var), is_frozen)| {
            let name = format!("{at}.{name}");
            if is_frozen { unit.frozen(name, var) } else { unit.parameter(name, var) }
        })
    };
    layers.iter().enumerate().map(unit).collect()
}

fn batch(layers: &[Layer], step: usize, rank: usize, world: usize) -> (Tensor, Tensor) {
    let draw = &mut fastrand::Rng::with_seed(step as u64);
    let (first, last) = (&layers[0], &layers[layers.len() - 1]);
    let inputs = draw_tensor(draw, &[ROWS, first.weight.dims()[1]]);
    let targets = draw_tensor(draw, &[ROWS, last.bias.dims()[0]]);
    let own = |all: Tensor| all.narrow(0, rank * ROWS / world, ROWS / world).expect("rows");
    (own(inputs), own(targets))
}

fn loss(output: &Tensor, targets: &Tensor) -> Tensor {
    (output - targets).and_then(|apart| apart.sqr()?.mean_all()).expect("a loss")
}

/// With candle alone, in one graph.
fn plain(seed: u64) -> Vec<f64> {
    let layers = layers(seed);
    let trained =
        layers.iter().flat_map(|layer| [&layer.weight, &layer.bias, &layer.gain].into_iter().zip(layer.is_frozen));
    let mut vars: Vec<&Var> = vec![];
    for (var, is_frozen) in trained {
        if !is_frozen && !vars.iter().any(|other| other.id() == var.id()) {
            vars.push(var);
        }
    }
    let step = |step: usize| {
        let (inputs, targets) = batch(&layers, step, 0, 1);
        let output = layers.iter().try_fold(inputs, |x, layer| layer.forward(&x)).expect("forward");
        let loss = loss(&output, &targets);
        let gradients = loss.backward().expect("backward");
        for var in &vars {
            let slope = gradients.get(var).expect("a gradient");
            var.set(&(var.as_tensor() - (slope * RATE).expect("a product")).expect("a difference")).expect("a value");
        }
        f64::from(loss.to_scalar::<f32>().expect("a number"))
    };
    (0..STEPS).map(step).collect()
}

fn train(strategy: impl Strategy, seed: u64, all: Option<&Group>) -> Vec<f64> {
    let layers = layers(seed);
    let (rank, world) = all.map_or((0, 1), |all| (all.rank(), all.size()));
    let mut model = Model::new(units(&layers), strategy).expect("a model");
    let step = |step: usize| {
        let (inputs, targets) = batch(&layers, step, rank, world);
        let output = model.forward(&inputs).expect("forward");
        let loss = loss(&output, &targets);
        model.backward(&loss).expect("backward");
        assert_eq!(model.unused(), [""; 0]);
        Sgd::new().step(&mut model, RATE).expect("a step");
        model.zero_gradients();
        let mut mean = [f64::from(loss.to_scalar::<f32>().expect("a number"))];
        all.iter().for_each(|all| all.all_reduce(&mut mean, ReduceOp::Avg).expect("a mean"));
        mean[0]
    };
    (0..STEPS).map(step).collect()
}

#[test]
fn any_shape_trains_as_one_graph_of_candle() {
    let mut shared = 0;
    for seed in 0..24 {
        let expected = plain(seed);
        shared += usize::from(layers(seed).iter().any(|layer| layer.is_turned));
        assert_equal(&format!("seed {seed}, alone"), &train(Single::new(), seed, None), &expected, 1e-6);
        let world = 1 + seed as usize % 4;
        let reshard = [Reshard::Yes, Reshard::No, Reshard::Smaller][seed as usize / 4 % 3];
        let ahead = seed as usize / 2 % 3;
        let policy = Policy::default().reshard_after_forward(reshard).forward_prefetch(ahead).backward_prefetch(ahead);
        let company = if world == 4 { Company::of(2).replicas(2).smaller(2) } else { Company::of(world).smaller(1) };
        let sharded = company.run(|groups, all| train(FullyShard::new(groups, policy.clone()), seed, Some(&all)));
        let replicated = company.run(|_, all| train(Ddp::new(all.clone()), seed, Some(&all)));
        for losses in sharded.iter().chain(&replicated) {
            assert_equal(&format!("seed {seed}, {reshard:?}, {ahead} ahead, {company:?}"), losses, &expected, 1e-6);
        }
    }
    assert!(shared >= 6, "{shared}");
}

#[test]
fn what_units_do_not_agree_on_is_refused_by_name() {
    let var = Var::zeros((2, 2), candle_core::DType::F32, &Device::Cpu).expect("a variable");
    let unit = |name: &str| Unit::new(name, |x: &Tensor| Ok(x.clone()));
    let refused = |units: Vec<Unit>| match Model::new(units, Single::new()) {
        Err(Error::Usage(why)) => why,
        other => panic!("{other:?}"),
    };
    let twice = refused(vec![unit("a").parameter("one", &var).parameter("two", &var)]);
    assert!(twice.contains("one and two of unit a are one variable: give it once"), "{twice}");
    let mixed = refused(vec![unit("a").parameter("one", &var), unit("b").frozen("two", &var)]);
    assert!(mixed.contains("one and two are one variable: must be frozen in both units or trained in both"), "{mixed}");
}
