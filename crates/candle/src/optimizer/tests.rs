//! Optimizers against values that PyTorch has computed.

use candle_core::{DType, Device, Module, Tensor, Var};
use phalanx_comm::Threads;
use phalanx_core::Group;

use super::*;
use crate::{Ddp, FullyShard, Policy, Single, Strategy, Unit};

struct Times(Var);

impl Module for Times {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        x.mul(&self.0)
    }
}

/// The weights after each of three steps from `[1, -2]` on the loss `sum(x * weight^2) / 2` with `x` of `[3, 0.5]`.
fn path(optimizer: &mut dyn Optimizer) -> Vec<Vec<f32>> {
    let weight = Var::new(&[1.0_f32, -2.0], &Device::Cpu).expect("a variable");
    let unit = Unit::new("times", Times(weight.clone())).parameter("weight", &weight);
    let mut model = Model::new(vec![unit], Single::new()).expect("a model");
    let x = Tensor::new(&[3.0_f32, 0.5], &Device::Cpu).expect("an input");
    let mut step = || -> Result<Vec<f32>> {
        let output = model.forward(&x)?;
        // The gradient of `x * w` times a constant w is that of `x * w^2 / 2`.
        let loss = output.mul(&weight.as_detached_tensor())?.sum_all()?;
        model.backward(&loss)?;
        optimizer.step(&mut model, 0.1)?;
        model.zero_gradients();
        Ok(weight.to_vec1()?)
    };
    (0..3).map(|_| step().expect("a step")).collect()
}

fn assert_close(path: &[Vec<f32>], expected: [[f32; 2]; 3]) {
    for (step, (is, expected)) in path.iter().zip(expected).enumerate() {
        let differs = is.iter().zip(expected).any(|(is, expected)| (is - expected).abs() > 2e-6);
        assert!(!differs, "step {step}: {is:?}, not {expected:?}");
    }
}

#[test]
fn adam_goes_the_way_of_pytorch() {
    let path = path(&mut AdamW::default());
    assert_close(&path, ADAMW);
}

#[test]
fn what_is_new_counts_as_in_pytorch_however_slowly_averages_forget() {
    let betas = (0.9, 0.9999);
    let weight = Var::new(&[1.0_f32], &Device::Cpu).expect("a variable");
    let unit = Unit::new("times", Times(weight.clone())).parameter("weight", &weight);
    let mut model = Model::new(vec![unit], Single::new()).expect("a model");
    let mut optimizer = AdamW::default().betas(betas.0, betas.1);
    // The input is the gradient, a power of two: nothing is rounded but the two shares.
    let output = model.forward(&Tensor::new(&[2.0_f32], &Device::Cpu).expect("an input")).expect("an output");
    model.backward(&output.sum_all().expect("a loss")).expect("backward");
    optimizer.step(&mut model, 0.1).expect("a step");
    let moments: Vec<f64> = optimizer.state(&model).iter().map(|(_, all)| f64::from(all[0][0])).collect();
    for (is, expected) in moments.iter().zip([(1.0 - betas.0) * 2.0, (1.0 - betas.1) * 2.0 * 2.0]) {
        assert!((is / expected - 1.0).abs() < 1e-7, "{is}, not {expected}");
    }
}

#[test]
fn descent_goes_the_way_of_pytorch() {
    assert_close(&path(&mut Sgd::new()), SGD);
    assert_close(&path(&mut Sgd::new().momentum(0.9)), SGD_MOMENTUM);
}

/// One step of a weight of six rows.
fn step(optimizer: &mut impl Optimizer, strategy: impl Strategy) -> (Result<()>, Model) {
    let weight = Var::ones((6, 2), DType::F32, &Device::Cpu).expect("a variable");
    let unit = Unit::new("times", Times(weight.clone())).parameter("weight", &weight);
    let mut model = Model::new(vec![unit], strategy).expect("a model");
    let x = Tensor::ones((6, 2), DType::F32, &Device::Cpu).expect("an input");
    let loss = model.forward(&x).and_then(|output| Ok(output.sum_all()?)).expect("a loss");
    model.backward(&loss).expect("backward");
    (optimizer.step(&mut model, 0.1), model)
}

#[test]
fn what_is_remembered_of_other_parts_makes_no_step_of_this_model() {
    fn check(group: &Group, mut optimizer: impl Optimizer) {
        step(&mut optimizer, Single::new()).0.expect("a step");
        step(&mut optimizer, Ddp::new(group.clone())).0.expect("a step: the same elements, whoever writes them down");
        let (refused, mut model) = step(&mut optimizer, FullyShard::new(group.clone(), Policy::default()));
        let own = 6 * group.rank()..6 * (group.rank() + 1);
        let told =
            format!("is of elements 0..12 of weight [6, 2], and the model has elements {own:?} of weight [6, 2]");
        let refused = refused.expect_err("refused").to_string();
        assert!(refused.contains(&told), "{refused}");
        assert_eq!(optimizer.steps(), 2);
        for (_, values) in optimizer.state(&model) {
            assert_eq!(values, [[0.0; 6]]);
        }
        assert_eq!(optimizer.steps(), 0, "zero moments are of no step");
        optimizer.step(&mut model, 0.1).expect("a step");
    }
    let rank = |group: Group| {
        check(&group, AdamW::default());
        check(&group, Sgd::new().momentum(0.9));
    };
    Threads::new(2).run(rank).expect("a world");
}

#[test]
fn settings_with_which_no_step_can_be_made_are_refused_before_one() {
    let refuse = |mut optimizer: Box<dyn Optimizer>, rate: f64, told: &str| {
        let mut model = step(&mut Sgd::new(), Single::new()).1;
        let refused = optimizer.step(&mut model, rate).expect_err("refused").to_string();
        assert_eq!((refused.as_str(), optimizer.steps()), (told, 0));
        model.look(|_, values| assert_eq!(values, [0.9; 12])).expect("a look");
    };
    let adam = || AdamW::default();
    refuse(Box::new(adam().betas(1.0, 0.999)), 0.1, "step: the first beta is 1: must be at least 0 and below 1");
    refuse(Box::new(adam().betas(0.9, f64::NAN)), 0.1, "step: the second beta is NaN: must be at least 0 and below 1");
    refuse(Box::new(adam().epsilon(-1e-8)), 0.1, "step: epsilon is -0.00000001: must be a number of at least 0");
    refuse(Box::new(adam().decay(f64::INFINITY)), 0.1, "step: decay is inf: must be a number of at least 0");
    refuse(Box::new(adam()), f64::NAN, "step: rate is NaN: must be a number of at least 0");
    refuse(Box::new(Sgd::new().momentum(0.9)), -0.1, "step: rate is -0.1: must be a number of at least 0");
}

#[test]
fn the_rate_rises_and_falls() {
    let schedule = Schedule { peak: 1.0, least: 0.1, warmup: 3, steps: 11 };
    assert_eq!([0, 1, 2, 3].map(|step| schedule.rate(step)), [0.25, 0.5, 0.75, 1.0]);
    assert!((schedule.rate(7) - 0.55).abs() < 1e-12);
    assert_eq!((schedule.rate(11), schedule.rate(100)), (0.1, 0.1));
}

// PyTorch 2.13: `torch.optim` on the same loss, learning rate 0.1.
const ADAMW: [[f32; 2]; 3] = [[0.899, -1.898], [0.798_519, -1.7962726], [0.6989111, -1.6949446]];
const SGD: [[f32; 2]; 3] = [[0.7, -1.9], [0.49, -1.805], [0.343, -1.7147499]];
const SGD_MOMENTUM: [[f32; 2]; 3] = [[0.7, -1.9], [0.22, -1.715], [-0.2779999, -1.4627501]];
