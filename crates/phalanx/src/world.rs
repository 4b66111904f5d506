//! Worlds in one line: of threads, or of processes that a launcher started.

use phalanx_comm::Threads;
use phalanx_comm::rendezvous::World;
use phalanx_core::{Error, ErrorKind, Group, Result};

use crate::joining::Joining;
use crate::report;

/// Runs `rank` on `size` threads of this process, each with its group, and returns what each returned, in rank order.
///
/// ```
/// let ends = phalanx::threads(3, |group| {
///     let mut ranks = [0_u64; 3];
///     group.all_gather(&[group.rank() as u64], &mut ranks).map(|()| ranks)
/// })?;
/// assert!(ends.iter().all(|end| *end == Ok([0, 1, 2])));
/// # Ok::<(), phalanx::Error>(())
/// ```
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
/// it is the one that did not only hear of another's failure, or miss it.
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
    let ends = threads(size, rank)?;
    let failed: Vec<(usize, &Error)> =
        ends.iter().enumerate().filter_map(|(rank, end)| Some((rank, end.as_ref().err()?))).collect();
    let Some(why) = cause(&failed) else { return ends.into_iter().collect() };
    Err(why.clone())
}

/// Why ranks failed of which each returned this: the first error that is not of another one's end.
fn cause<'a>(failed: &[(usize, &'a Error)]) -> Option<&'a Error> {
    let has_failed = |rank: &usize| failed.iter().any(|(other, _)| other == rank);
    let is_own = |(rank, error): &&(usize, &Error)| {
        error.kind() != ErrorKind::Aborted
            && !error.culprits().iter().any(|culprit| culprit != rank && has_failed(culprit))
    };
    let own = failed.iter().find(is_own);
    // Ranks may blame each other.
    let first = own.or_else(|| failed.iter().find(|(_, error)| error.kind() != ErrorKind::Aborted)).or(failed.first());
    first.map(|(_, error)| *error)
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
/// ```no_run
/// let world = phalanx::join("file:///mnt/shared/job?rank=1&world_size=4")?;
/// println!("rank {} of {} on {} hosts", world.rank(), world.size(), world.nodes());
/// # Ok::<(), phalanx::Error>(())
/// ```
///
/// # Errors
///
/// As [`init`].
pub fn join(url: &str) -> Result<World> {
    // What fails before a rank is known is reported here; the rest by `Joining`.
    Joining::url(url).inspect_err(|error| report::leave(error, None))?.join()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_world_is_that_of_the_rank_that_failed_by_itself() {
        for failing in 0..3 {
            let ended = try_threads(3, |group| match group.rank() == failing {
                true => Err(Error::setup("file", "there is none")),
                false => group.barrier(),
            });
            let told = ended.expect_err("one has failed").to_string();
            assert!(told.contains("there is none"), "{told}");
        }
    }

    #[test]
    fn of_ranks_that_blame_each_other_the_first_is_told() {
        use phalanx_core::PeerReason::Left;
        let (first, second) = (Error::peer(1, Left, "left"), Error::peer(0, Left, "left"));
        assert_eq!(cause(&[(0, &first), (1, &second)]), Some(&first));
        assert_eq!(cause(&[]), None);
    }
}
