//! The deterministic simulator of Phalanx: whole worlds in one thread, over simulated links and windows.
//!
//! One seed chooses everything: the world and its hosts, a program of a few operations with their algorithms and data,
//! who is polled when, how many bytes each call moves, delays and stalls, and in about half of the seeds one fault
//! ([`FaultKind`]). The schedules and the player are the core's own; only links, windows and time are simulated.
//!
//! Whatever the seed, each call must end in time, in the right answer or in a typed error that something called for
//! ([`ViolationKind`] lists what must not happen). Every error closes the links of its rank, as an abort does.
//!
//! That the simulator would find a bug is shown by planting some: a [`Mutation`] changes a schedule, as data, and the
//! seeds that follow must show a violation.
//!
//! ```
//! use phalanx_sim::{Mutation, Options, campaign, run};
//!
//! let tally = campaign(&Options::default().seeds(50), |_| {});
//! assert!(tally.violations().is_empty());
//!
//! let options = Options::default().mutation(Some(Mutation::DroppedFold)).until_caught(true);
//! let tally = campaign(&options, |_| {});
//! let (seed, _) = tally.caught()[0];
//! println!("{}", run(seed, Some(Mutation::DroppedFold)));
//! ```
#![forbid(unsafe_code)]

mod actor;
mod board;
mod campaign;
mod data;
mod draw;
mod fault;
mod join;
mod mutation;
mod network;
mod number;
mod odd;
mod oracle;
mod plant;
mod program;
mod report;
mod run;
mod scene;
mod stage;
mod tamper;

pub use campaign::{Options, Tally, campaign};
pub use fault::FaultKind;
pub use mutation::{Mutation, UnknownMutation};
pub use report::{Ending, Report, Violation, ViolationKind};
pub use run::run;
