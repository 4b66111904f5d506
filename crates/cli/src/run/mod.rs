//! `phalanx run`: the ranks of a world as processes, watched over by a tree that leaves nothing behind.
//!
//! Three processes of ours stand between the user and a rank, each for one reason. The [`guard`] is what the user started:
//! it outlives the launcher and sweeps up after it. The [`launcher`](launch) serves the stores, starts the ranks, passes
//! on their output and judges what went wrong. The [`rank step`](become_program) ties a rank's life to the launcher's,
//! and then becomes the program. Not here: what ranks do once they have met.

mod company;
mod epoch;
mod events;
mod exec;
mod guard;
pub(crate) mod interrupt;
mod launcher;
mod node;
mod options;
mod output;
mod plan;
pub(crate) mod process;
mod program;
pub(crate) mod scratch;
mod spawn;
mod stores;
mod verdict;
mod watch;

pub(crate) use exec::{RankStep, become_program};
pub(crate) use guard::guard;
pub(crate) use launcher::{LaunchStep, launch};
pub(crate) use options::Options;
