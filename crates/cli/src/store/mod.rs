//! `phalanx store`: a store served by itself, and one looked into from outside.

mod ask;
mod bench;
mod command;
mod content;
mod mint;
mod serve;
mod watch;

pub(crate) use ask::connect;
pub(crate) use command::{Options, Target, run};
