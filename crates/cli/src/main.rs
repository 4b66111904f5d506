//! The command line of Phalanx. Each command is a room of its own; here they are only found.
#![forbid(unsafe_code)]

mod bench;
mod burden;
mod command;
mod completions;
mod condition;
mod counted;
mod descriptor;
mod doctor;
mod failure;
mod figures;
mod gpu_check;
mod key;
mod open_files;
mod run;
mod seconds;
mod simulate;
mod sizes;
mod store;
mod svg;
mod tied;
mod top;
mod trace;
mod train;

use std::process::ExitCode;

use clap::Parser;

use command::{Command, CommandLine};

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::new().filter_or("PHALANX_LOG", "warn")).init();
    let done = match CommandLine::parse().command {
        Command::Run(options) => run::guard(&options),
        Command::Launch(step) => run::launch(&step),
        Command::Rank(step) => run::become_program(&step),
        Command::Store(options) => store::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::BenchRank => bench::rank(),
        Command::Train(options) => train::run(&options),
        Command::TrainRank(step) => train::rank(&step),
        Command::Simulate(options) => simulate::run(&options),
        Command::Trace(options) => trace::run(&options),
        Command::Top(options) => top::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Neighbour(role) => doctor::neighbour(&role),
        Command::GpuCheck(options) => gpu_check::run(&options),
        Command::GpuRank(role) => gpu_check::rank(&role),
        Command::Completions(options) => completions::run(&options),
    };
    failure::exit_code(done)
}
