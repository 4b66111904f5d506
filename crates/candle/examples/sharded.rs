//! The same model, each process of which holds its part: `phalanx run --nproc-per-node 2 target/debug/examples/sharded`. See `plain`.

use std::error::Error;
use std::io::{Write, stdout};

use candle_core::{Device, Module, Result, Tensor, Var};
use phalanx_candle::ops::{gelu, linear};
use phalanx_candle::{FullyShard, Model, Optimizer, Policy, Sgd, Unit};

struct Layer(Var);

impl Module for Layer {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x + gelu(&linear(x, &self.0)?)?
    }
}

fn values(seed: u64, rows: usize) -> Result<Tensor> {
    let mut draw = fastrand::Rng::with_seed(seed);
    Tensor::from_vec((0..rows * 16).map(|_| draw.f32() - 0.5).collect::<Vec<_>>(), (rows, 16), &Device::Cpu)
}

fn layers() -> Result<Vec<Layer>> {
    (0..4).map(|seed| Ok(Layer(Var::from_tensor(&values(seed, 16)?)?))).collect()
}

fn unit((at, layer): (usize, Layer)) -> Unit {
    let weight = layer.0.clone();
    Unit::new(format!("layer {at}"), layer).parameter(format!("{at}.weight"), &weight)
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let world = phalanx::init()?;
    let units = layers()?.into_iter().enumerate().map(unit).collect();
    let mut model = Model::new(units, FullyShard::new(world.group()?, Policy::default()))?;
    for step in 0..100 {
        let x = values(1000 + step * 2 + world.rank() as u64, 32)?;
        let wanted = x.neg()?;
        let output = model.forward(&x)?;
        let loss = (output - wanted)?.sqr()?.mean_all()?;
        model.backward(&loss)?;
        Sgd::new().step(&mut model, 0.5)?;
        model.zero_gradients();
        writeln!(stdout(), "step {step} loss {:.4}", loss.to_scalar::<f32>()?)?;
    }
    Ok(())
}
