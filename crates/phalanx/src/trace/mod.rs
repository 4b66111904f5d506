//! What the groups of a rank have recorded, as a file or on its way to whoever asks.
//!
//! Where `PHALANX_TRACE_DIR` names a directory, every rank writes its dump there when a call fails, and on `SIGUSR2`. Without it too
//! `phalanx trace collect` asks the ranks of its host for theirs, as [`collect_host()`] does, and where it is given the job's store those of all hosts,
//! as [`collect()`] does. `phalanx trace analyze DIR` reads what they say.

mod accuser;
mod black_box;
mod collect;
mod host;
mod keys;
mod listener;

use std::path::{Path, PathBuf};

use phalanx_comm::rendezvous::World;
use phalanx_core::{Error, Result};
use phalanx_trace::files;

use crate::presence::Seat;

pub(crate) use black_box::BlackBox;
pub use collect::{Collected, collect};
pub use host::collect_host;
pub(crate) use listener::Listener;

/// Writes what the groups of this world have recorded on this rank into a directory, for `phalanx trace`; returns the file's path.
///
/// # Errors
///
/// [`Setup`](phalanx_core::ErrorKind::Setup), which names the file and what the system said.
pub fn dump(world: &World, directory: &Path) -> Result<PathBuf> {
    let dump = black_box::take(&Seat::of(world), |_| None);
    files::write(directory, &dump).map_err(|error| Error::setup("trace", error))
}
