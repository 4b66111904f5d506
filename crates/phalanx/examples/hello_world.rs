//! Every rank says who it is, exchanges a value with every other rank through the store, and leaves.
//!
//! Start it with `phalanx run`, torchrun, `mpirun` or `srun`, or once for each rank with `RANK`, `WORLD_SIZE`, `MASTER_ADDR`
//! and `MASTER_PORT` set.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use phalanx::{Joining, World};

fn main() -> ExitCode {
    match hello() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn hello() -> Result<(), Box<dyn Error>> {
    // The same as `phalanx::init()`, which does not say who was recognised.
    let joining = Joining::environment()?;
    let launcher = joining.launcher().map_or_else(|| "nobody".to_owned(), |launcher| launcher.to_string());
    let world = joining.join()?;
    introduce(&world, &launcher)?;
    exchange(&world)?;
    world.barrier("said hello", PATIENCE)?;
    Ok(world.leave(PATIENCE)?)
}

fn introduce(world: &World, launcher: &str) -> Result<(), Box<dyn Error>> {
    let (rank, size, epoch) = (world.rank(), world.size(), world.epoch());
    let (local, locals, host) = (world.local_rank(), world.local_size(), world.members()[rank].host_name());
    // One write a line, so that the lines of several ranks stay whole.
    let line = format!(
        "rank {rank} of {size} on host {host} (local {local} of {locals}), epoch {epoch}, recognised {launcher}\n"
    );
    Ok(std::io::stdout().write_all(line.as_bytes())?)
}

/// Leaves a letter for every rank, and reads those of all.
fn exchange(world: &World) -> Result<(), Box<dyn Error>> {
    let (store, rank) = (world.store().with_timeout(PATIENCE), world.rank());
    let letter = |from: usize, to: usize| (format!("{from} to {to}"), format!("{}", from * 1000 + to));
    for to in 0..world.size() {
        let (key, value) = letter(rank, to);
        store.set(&key, value)?;
    }
    for from in 0..world.size() {
        let (key, value) = letter(from, rank);
        let read = store.get(&key)?;
        if read != value.as_bytes() {
            return Err(format!("letter {key} says {}, must say {value}", String::from_utf8_lossy(&read)).into());
        }
    }
    Ok(())
}

const PATIENCE: Duration = Duration::from_secs(60);
