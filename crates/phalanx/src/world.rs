//! Worlds in one line: of threads, or of processes that a launcher started.

use phalanx_comm::Threads;
use phalanx_comm::rendezvous::World;
use phalanx_core::{ErrorKind, Group, Result};

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

/// The same where ranks may fail: what each returned, in rank order, or why the first of them failed. Of ranks that end because of each other
/// it is the one that did not only hear of another's failure.
///
/// ```
/// let sums = phalanx::try_threads(3, |group| {
///     let mut sum = [group.rank() as u64 + 1];
///     group.all_reduce(&mut sum, phalanx::ReduceOp::Sum)?;
///     Ok(sum[0])
/// })?;
/// assert_eq!(sums, [6; 3]);
/// # Ok::<(), phalanx::Error>(())
/// ```
///
/// # Errors
///
/// As [`threads`], and what a rank returned.
///
/// # Panics
///
/// As [`threads`].
pub fn try_threads<R: Send>(size: usize, rank: impl Fn(Group) -> Result<R> + Sync) -> Result<Vec<R>> {
    let (ended, mut failed): (Vec<_>, Vec<_>) = threads(size, rank)?.into_iter().partition(Result::is_ok);
    if failed.is_empty() {
        return ended.into_iter().collect();
    }
    let is_cause = |end: &Result<R>| matches!(end, Err(error) if error.kind() != ErrorKind::Aborted);
    let first = failed.iter().position(is_cause).unwrap_or_default();
    failed.swap_remove(first).map(|_| vec![])
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
