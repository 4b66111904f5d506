//! A rank dies, and the others go on without it, in the same processes.
//!
//! It starts its own ranks: `cargo run -p phalanx --example survivors`.
#![allow(clippy::print_stdout)]

use std::env;
use std::error::Error;
use std::process::{Command, exit};
use std::time::Duration;

use phalanx::store::{ServerOptions, StoreServer};
use phalanx::{Group, ReduceOp, Wiring, World};

fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1) {
        Some(url) => Ok(work(phalanx::join(&url)?)?),
        None => start(),
    }
}

/// Serves the store, which has to outlive every rank, and starts the ranks.
fn start() -> Result<(), Box<dyn Error>> {
    let server = StoreServer::start(ServerOptions::new("127.0.0.1:0".parse()?))?;
    let url = |rank| format!("tcp://{}?rank={rank}&world_size={RANKS}&host=false", server.address());
    let own = env::current_exe()?;
    let ranks = (0..RANKS).map(|rank| Command::new(&own).arg(url(rank)).spawn());
    for mut rank in ranks.collect::<Result<Vec<_>, _>>()? {
        rank.wait()?;
    }
    Ok(())
}

fn work(mut world: World) -> phalanx::Result<()> {
    let mut step = 0;
    while step < STEPS {
        // A rank may also die while the group is formed: it does not come in time.
        let group = world.wire(&Wiring::default().timeout(FORMING));
        let ended = group.and_then(|group| train(&world, &group, &mut step));
        if let Err(error) = ended {
            println!("rank {}: {error}", world.rank());
            // Those who remain agree on who goes on, under new numbers.
            world = world.reconfigure(&error.culprits(), COMING)?;
            println!("now rank {} of {}, at step {step}", world.rank(), world.size());
        }
    }
    println!("rank {} of {} is done", world.rank(), world.size());
    Ok(())
}

fn train(world: &World, group: &Group, step: &mut u32) -> phalanx::Result<()> {
    // After a change all take over what rank 0 has.
    let mut shared = [*step];
    group.broadcast(&mut shared, 0)?;
    *step = shared[0];
    while *step < STEPS {
        if *step == FATAL && world.rank() == 2 && world.size() == RANKS {
            exit(1);
        }
        group.all_reduce(&mut [1.0_f32; 1000], ReduceOp::Avg)?;
        *step += 1;
    }
    Ok(())
}

const RANKS: usize = 4;
const STEPS: u32 = 10;
const FATAL: u32 = 5;
const FORMING: Duration = Duration::from_secs(5);
/// Longer than that: another rank may wait for its group still.
const COMING: Duration = Duration::from_secs(10);
