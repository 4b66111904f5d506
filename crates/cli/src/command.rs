//! The commands and their flags.

use clap::{Parser, Subcommand};

use crate::{bench, simulate, store};

/// Distributed training communication: measure it and try its faults.
#[derive(Debug, Parser)]
#[command(name = "phalanx", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Bench(bench::Options),
    Simulate(simulate::Options),
    #[command(subcommand)]
    Store(store::Command),
}

const EXIT_CODES: &str = "\
Exit codes:
  0  all went well
  1  it ran, and found something wrong: a wrong result, a violation, a failed operation
  2  the command line could not be understood";
