//! `phalanx store`: a store served by itself, and one looked into from outside.

mod ask;
mod command;
mod content;
mod mint;
mod serve;
mod watch;

pub(crate) use command::{Options, run};
