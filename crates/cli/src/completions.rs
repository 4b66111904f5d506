//! `phalanx completions`: scripts that teach a shell the commands and flags.

use std::io::{self, Write};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::command::CommandLine;
use crate::failure::{Failure, printed};

/// Print a script that completes commands and flags in a shell
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The shell
    shell: Shell,
}

/// Prints the script for a shell.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut CommandLine::command(), "phalanx", &mut script);
    printed(io::stdout().write_all(&script))
}

const EXAMPLES: &str = "\
Examples:
  source <(phalanx completions bash)                                       for this shell
  phalanx completions fish > ~/.config/fish/completions/phalanx.fish       for good";
