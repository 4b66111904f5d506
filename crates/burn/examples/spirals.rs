//! A model of burn's layers whose parameters are divided among ranks: it learns to tell which of two spirals a point is on.
//!
//! `phalanx run --standalone --nproc-per-node 2 -- target/debug/examples/spirals`
#![allow(clippy::print_stdout)]

use burn::module::Module;
use burn::tensor::activation::{gelu, log_softmax};
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn_optim::AdamWConfig;
use phalanx_burn::{FullyShard, Policy, Units};

/// A layer and its norm, around which its input goes as well.
#[derive(Module, Debug)]
struct Block {
    norm: LayerNorm,
    wide: Linear,
    narrow: Linear,
}

impl Block {
    fn new(device: &Device) -> Block {
        let linear = |from, to| LinearConfig::new(from, to).init(device);
        Block {
            norm: LayerNormConfig::new(WIDTH).init(device),
            wide: linear(WIDTH, 4 * WIDTH),
            narrow: linear(4 * WIDTH, WIDTH),
        }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        x.clone() + self.narrow.forward(gelu(self.wide.forward(self.norm.forward(x))))
    }
}

fn main() -> phalanx::Result<()> {
    let world = phalanx::init()?;
    let device = Device::flex().autodiff();
    let mut units = Units::new();
    let first = units.add("first", LinearConfig::new(2, WIDTH).init(&device));
    let blocks = [0, 1, 2].map(|at| units.add(format!("block {at}"), Block::new(&device)));
    let last = units.add("last", LinearConfig::new(WIDTH, 2).init(&device));
    let mut model = FullyShard::new(world.group()?, Policy::default(), units)?;
    let mut optimizer = AdamWConfig::new().init();
    for step in 0..=STEPS {
        let (points, spirals) = batch(step * world.size() + world.rank(), &device);
        let mut x = model.run(first, points, Linear::forward)?;
        for block in blocks {
            x = model.run(block, x, Block::forward)?;
        }
        let scores = model.run(last, x, Linear::forward)?;
        let loss = log_softmax(scores, 1).gather(1, spirals).mean().neg();
        model.backward(&loss)?;
        model.clip(1.0)?;
        model.step(&mut optimizer, 3e-3)?;
        if step % 50 == 0 && world.rank() == 0 {
            println!("step {step:3}  loss {:.3}", loss.into_scalar::<f32>());
        }
    }
    let own: usize = model.parts().iter().map(|part| part.elements.len()).sum();
    println!("rank {} of {} held {own} parameters", world.rank(), world.size());
    Ok(())
}

/// Points on two spirals, and on which each is.
fn batch(seed: usize, device: &Device) -> (Tensor<2>, Tensor<2, Int>) {
    let spiral = |at: usize| (at % 2) as f32;
    // As even as random numbers, and the same in every run.
    let angle = |at: usize| 6.0 * (0.618_034 * (seed * ROWS + at) as f32).fract();
    let point = |at: usize| {
        let (angle, turn) = (angle(at), std::f32::consts::PI * spiral(at));
        [angle * (angle + turn).cos() / 6.0, angle * (angle + turn).sin() / 6.0]
    };
    let points = (0..ROWS).flat_map(point).collect::<Vec<f32>>();
    let spirals = (0..ROWS).map(|at| (at % 2) as i64).collect::<Vec<_>>();
    let spirals = Tensor::from_data(TensorData::new(spirals, [ROWS, 1]), device);
    (Tensor::from_data(TensorData::new(points, [ROWS, 2]), device), spirals)
}

const WIDTH: usize = 32;
const ROWS: usize = 64;
const STEPS: usize = 300;
