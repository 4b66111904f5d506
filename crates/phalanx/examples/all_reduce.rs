//! The least there is: every rank has gradients, and gets the average of all.
//!
//! Start it with `phalanx run --standalone --nproc-per-node 4 -- target/debug/examples/all_reduce`, torchrun, `mpirun` or `srun`.
#![allow(clippy::print_stdout)]

use phalanx::ReduceOp;

fn main() -> phalanx::Result<()> {
    let world = phalanx::init()?;
    let group = world.group()?;
    let mut gradient = vec![world.rank() as f32; 1000];
    group.all_reduce(&mut gradient, ReduceOp::Avg)?;
    println!("rank {} of {}: {}", world.rank(), world.size(), gradient[0]);
    Ok(())
}
