//! A small model trained by one process, with candle alone: `cargo run -p phalanx-candle --example plain`. See `sharded`.

use std::error::Error;
use std::io::{Write, stdout};

use candle_core::{Device, Module, Result, Tensor, Var};
use phalanx_candle::ops::{gelu, linear};

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

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let layers = layers()?;
    for step in 0..100 {
        let x = values(1000 + step, 32)?;
        let wanted = x.neg()?;
        let output = layers.iter().try_fold(x, |x, layer| layer.forward(&x))?;
        let loss = (output - wanted)?.sqr()?.mean_all()?;
        let gradients = loss.backward()?;
        for Layer(weight) in &layers {
            let slope = gradients.get(weight).ok_or("no gradient")?;
            weight.set(&(weight.as_tensor() - (slope * 0.5)?)?)?;
        }
        writeln!(stdout(), "step {step} loss {:.4}", loss.to_scalar::<f32>()?)?;
    }
    Ok(())
}
