//! Communication beside computation: the gradients of a layer travel while those of the next are computed.
//!
//! Start it with `phalanx run --standalone --nproc-per-node 4 -- target/debug/examples/overlap`, torchrun, `mpirun` or `srun`.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use phalanx::ReduceOp;

fn main() -> phalanx::Result<()> {
    let world = phalanx::init()?;
    let group = world.group()?;
    let began = Instant::now();
    // From the last layer to the first, as a backward pass does.
    let works = (0..LAYERS).rev().map(|layer| group.all_reduce_async(backward(layer, world.rank()), ReduceOp::Avg));
    let works = works.collect::<phalanx::Result<Vec<_>>>()?;
    let computed = began.elapsed();
    let mut sum = 0.0;
    for work in works {
        sum += work.wait()?.iter().sum::<f32>();
    }
    let waited = began.elapsed() - computed;
    println!("rank {}: {sum}; computed for {computed:?}, then waited for {waited:?}", world.rank());
    Ok(())
}

/// The gradients of a layer.
fn backward(layer: usize, rank: usize) -> Vec<f32> {
    (0..LEN).map(|at| ((at * (layer + 1)) as f32).sin() + rank as f32).collect()
}

const LAYERS: usize = 8;
const LEN: usize = 100_000;
