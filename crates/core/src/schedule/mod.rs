//! Schedules: one rank's whole part in an operation, decided from numbers alone and played elsewhere.
//!
//! A [`Schedule`] is a list of [`Step`]s over three places of memory. Nothing here touches data, a link or a clock, so
//! every schedule of every rank can be checked before a byte moves ([`check`]). `docs/algorithms.md` tells the steps
//! and the bytes of each algorithm.

mod barrier;
mod build;
mod chain;
mod check;
mod choose;
mod direct;
mod draft;
mod exchange;
mod halving;
mod lend;
mod levels;
mod profile;
mod ring;
mod slices;
mod step;
mod team;
mod tree;

pub use build::{Plan, build};
pub use check::{Event, Fault, check, walk};
pub use choose::{Algorithm, Ground, Pieces, choose};
pub use lend::{Lending, Source};
pub use profile::{Profile, ProfileError};
pub use step::{Part, Place, Recv, Schedule, Send, Span, Step, Then};
