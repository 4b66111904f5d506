//! `phalanx run` as a user meets it: real processes, ended in every way there is, and nothing left behind.

mod ending;
mod environment;
mod job;
mod memory;
mod nodes;
mod output;
mod terminal;
mod tree;
