//! `phalanx store`: the store by hand.

mod bench;
mod serve;

use clap::Subcommand;

use crate::failure::Failure;

/// The store where ranks meet: measure one
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Bench(bench::Options),
    Serve(serve::Options),
}

/// Does what the command says.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Bench(options) => bench::run(options),
        Command::Serve(options) => serve::run(options),
    }
}
