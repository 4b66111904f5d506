//! One world of Rust and Python programs: these ranks are in Rust, and those of `examples/python/mixed.py` are in Python. Both make the
//! same calls.
//!
//! ```sh
//! phalanx run --standalone --nproc-per-node 4 -- \
//!     sh -c 'if [ $RANK -lt 2 ]; then exec target/debug/examples/mixed; else exec python examples/python/mixed.py; fi'
//! ```
//!
//! Without a launcher each rank is told the world as an argument: `mixed 'file:///tmp/world?rank=0&world_size=4'`.
#![allow(clippy::print_stdout)]

use phalanx::ReduceOp;

fn main() -> phalanx::Result<()> {
    let world = std::env::args().nth(1).map_or_else(phalanx::init, |url| phalanx::join(&url))?;
    let group = world.group()?;
    let (rank, last) = (group.rank(), group.size() - 1);

    // The weights are those of the last rank, which is PyTorch's.
    let mut weights = vec![0.0_f32; 4];
    group.broadcast(&mut weights, last)?;

    let mut gradient = vec![rank as f32; 1000];
    group.all_reduce(&mut gradient, ReduceOp::Avg)?;
    println!("rank {rank}, Rust: weights {weights:?}, mean gradient {}", gradient[0]);

    if rank == 0 {
        group.send(&weights, last, 7)?;
    }
    group.barrier()
}
