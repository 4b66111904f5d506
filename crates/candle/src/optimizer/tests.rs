//! Optimizers against values that PyTorch has computed.

use candle_core::{Device, Module, Tensor, Var};

use super::*;
use crate::single::Single;
use crate::unit::Unit;

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
