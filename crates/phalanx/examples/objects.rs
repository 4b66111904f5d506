//! Values of any type that serde knows: a configuration from one rank to all, and what all have found at one.
//!
//! Start it with `phalanx run --standalone --nproc-per-node 4 -- target/debug/examples/objects`, torchrun, `mpirun` or `srun`.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Settings {
    learning_rate: f32,
    layers: Vec<usize>,
}

fn main() -> phalanx::Result<()> {
    let world = phalanx::init()?;
    let group = world.group()?;
    // Rank 0 alone reads the file.
    let own = (world.rank() == 0).then(|| Settings { learning_rate: 3e-4, layers: vec![128, 64] });
    let settings = group.broadcast_object(own, 0)?;
    let losses = BTreeMap::from([(world.rank(), settings.learning_rate * world.rank() as f32)]);
    if let Some(all) = group.gather_object(&losses, 0)? {
        println!("{settings:?}: {:?}", all.into_iter().flatten().collect::<BTreeMap<_, _>>());
    }
    Ok(())
}
