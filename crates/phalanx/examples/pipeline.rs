//! A model cut into stages, one a rank: batches go from stage to stage by sends and receives, several under way at a time.
//!
//! Start it with `phalanx run --standalone --nproc-per-node 4 -- target/debug/examples/pipeline`, torchrun, `mpirun` or `srun`.
#![allow(clippy::print_stdout)]

use phalanx::{Delivered, Group};

fn main() -> phalanx::Result<()> {
    let world = phalanx::init()?;
    let group = world.group()?;
    let (rank, last) = (group.rank(), group.size() - 1);
    let mut sent = vec![];
    for batch in 0..BATCHES {
        let input = if rank == 0 { vec![batch as f32; LEN] } else { receive(&group, rank - 1, batch)? };
        let output: Vec<f32> = input.iter().map(|value| value * 2.0 + 1.0).collect();
        if rank == last {
            println!("batch {batch} ends as {}", output[0]);
        } else {
            // The next batch is computed while this one travels.
            sent.push(group.send_async(output, rank + 1, batch)?);
        }
    }
    sent.into_iter().try_for_each(|work| work.wait().map(drop))
}

fn receive(group: &Group, from: usize, batch: u32) -> phalanx::Result<Vec<f32>> {
    let Delivered { data, .. } = group.recv_async(vec![0.0; LEN], from, batch)?.wait()?;
    Ok(data)
}

const BATCHES: u32 = 4;
const LEN: usize = 10_000;
