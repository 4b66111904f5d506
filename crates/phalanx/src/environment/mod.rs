//! What the environment says of this process: who started it, which rank it is, and where the ranks meet.
//!
//! Each launcher has a room that knows its variables; [`Placement`] is what they have in common. Nothing here is reached
//! or opened: a placement is text that was understood.

mod hostlist;
mod kubernetes;
mod open_mpi;
mod placement;
mod pmi;
mod slurm;
mod torch;
mod variables;

pub(crate) use placement::{Door, KeySource, key_source};
pub use placement::{Launcher, Placement};
pub(crate) use variables::{Variables, seconds, wrong};
