//! Worlds in one line. Processes and machines come with stores and rendezvous.

use phalanx_comm::Threads;
use phalanx_core::{Group, Result};

/// Runs `rank` on `size` threads of this process, each with its group, and returns what each returned, in rank order.
///
/// # Panics
///
/// When a rank panics, after all have ended: its peers get an error that names it.
pub fn threads<R: Send>(size: usize, rank: impl Fn(Group) -> R + Sync) -> Result<Vec<R>> {
    Threads::new(size).run(rank)
}
