//! The last step before a rank's program: ties its life to the launcher's, takes its place on the cores, and becomes the
//! program. It is a process of its own so that all this happens after the fork without unsafe code.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::process::{cores, signals};
use crate::failure::{Failure, tell};
use crate::open_files;

/// What the launcher tells a rank's first moment.
#[derive(Args, Debug)]
pub(crate) struct RankStep {
    /// Process number of the launcher
    #[arg(long)]
    launcher: i32,

    /// Cores to stay on
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,

    /// How many files the program may have open
    #[arg(long)]
    open_files: Option<u64>,

    /// The program and its arguments
    #[arg(required = true, last = true)]
    program: Vec<OsString>,
}

/// Becomes the program; what comes back is why that could not be.
pub(crate) fn become_program(step: &RankStep) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| stopped("parent-death signal", error.into()))?;
    // A launcher that died before the line above sends no signal any more.
    if getppid().map(|pid| pid.as_raw_pid()) != Some(step.launcher) {
        return Err(Failure::Code(UNABLE));
    }
    signals::write_as_usual().map_err(|error| stopped("signal mask", error.into()))?;
    if !step.cores.is_empty()
        && let Err(error) = cores::pin(&step.cores)
    {
        tell(&format!("--pin: cores {:?}: {error}", step.cores));
    }
    step.open_files.into_iter().for_each(open_files::lower);
    let Some((program, arguments)) = step.program.split_first() else {
        return Err(Failure::Code(UNABLE));
    };
    let error = Command::new(program).args(arguments).exec();
    tell(&format!("cannot start {}: {error}", program.display()));
    let code = if error.kind() == io::ErrorKind::NotFound { ABSENT } else { UNABLE };
    Err(Failure::Code(code))
}

fn stopped(what: &str, error: io::Error) -> Failure {
    Failure::Stopped(format!("{what}: {error}"))
}

/// The exit codes of shells for a program that cannot be run, and for one that is not there.
const UNABLE: u8 = 126;
const ABSENT: u8 = 127;
