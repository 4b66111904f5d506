//! Worlds in one line: of threads, or of processes that a launcher started.

use phalanx_comm::Threads;
use phalanx_comm::rendezvous::World;
use phalanx_core::{Group, Result};

use crate::joining::Joining;
use crate::report;

/// Runs `rank` on `size` threads of this process, each with its group, and returns what each returned, in rank order.
///
/// # Errors
///
/// [`Setup`](phalanx_core::ErrorKind::Setup), where the ranks are more than 1024 or the system has no means for so many.
///
/// # Panics
///
/// When a rank panics, after all have ended: its peers get an error that names it.
pub fn threads<R: Send>(size: usize, rank: impl Fn(Group) -> R + Sync) -> Result<Vec<R>> {
    Threads::new(size).run(rank)
}

/// Joins the world that the environment describes: under `phalanx run`, torchrun, `mpirun`, `srun`, in a Kubernetes job, or
/// with `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` set.
///
/// ```no_run
/// use std::time::Duration;
///
/// let world = phalanx::init()?;
/// println!("rank {} of {}", world.rank(), world.size());
/// world.store().set(&format!("greeting of {}", world.rank()), "hello")?;
/// world.leave(Duration::from_secs(10))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`Setup`](phalanx_core::ErrorKind::Setup), naming the variable that is missing or wrong, the store that cannot be
/// reached, or the ranks that did not come; see [`Joining`].
pub fn init() -> Result<World> {
    join("env://")
}

/// Joins the world that `url` describes; see [`Joining::url`].
///
/// # Errors
///
/// As [`init`].
pub fn join(url: &str) -> Result<World> {
    // What fails before a rank is known is reported here; the rest by `Joining`.
    Joining::url(url).inspect_err(|error| report::leave(error, None))?.join()
}
