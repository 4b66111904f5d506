//! Groups of some ranks: a mesh of replicas and shards, the ranks of a host, and any others by colour.
//!
//! Start it with `phalanx run --standalone --nproc-per-node 4 -- target/debug/examples/subgroups`, torchrun, `mpirun` or `srun`.
#![allow(clippy::print_stdout)]

use phalanx::{ReduceOp, Wiring};

fn main() -> phalanx::Result<()> {
    let (world, wiring) = (phalanx::init()?, Wiring::default());
    let replicas = if world.size().is_multiple_of(2) { 2 } else { 1 };
    let mesh = world.mesh(&[("replica", replicas), ("shard", world.size() / replicas)], &wiring)?;
    for name in ["replica", "shard"] {
        let group = mesh.group(name).expect("it was just named");
        let mut sum = [world.rank() as u32];
        group.all_reduce(&mut sum, ReduceOp::Sum)?;
        println!("rank {}: along {name} are ranks {:?}, together {}", world.rank(), group.members(), sum[0]);
    }
    let host = world.host_group(&wiring)?;
    println!("rank {} is rank {} of {} on its host", world.rank(), host.rank(), host.size());
    // Odd ranks in one group, the highest first; even ones in none.
    let is_odd = world.rank() % 2 == 1;
    if let Some(odd) = world.split(is_odd.then_some(0), -(world.rank() as i64), &wiring)? {
        println!("rank {} is rank {} of the odd ones", world.rank(), odd.rank());
    }
    Ok(())
}
