//! The command line of Phalanx. Each command is a room of its own; here they are only found.
#![forbid(unsafe_code)]

mod bench;
mod command;
mod failure;
mod simulate;
mod sizes;
mod store;

use std::process::ExitCode;

use clap::Parser;

use command::{Command, CommandLine};

fn main() -> ExitCode {
    let done = match CommandLine::parse().command {
        Command::Bench(options) => bench::run(&options),
        Command::Simulate(options) => simulate::run(&options),
        Command::Store(command) => store::run(&command),
    };
    failure::exit_code(done)
}
