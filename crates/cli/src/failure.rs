//! How a command ends: what went wrong in one line, and the exit code.

use std::io::{self, Write};
use std::process::ExitCode;

/// Why a command did not end well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It ran and found something wrong, which stands in its output already.
    Found,
    /// It could not run to its end.
    Stopped(String),
}

impl From<phalanx::Error> for Failure {
    fn from(error: phalanx::Error) -> Failure {
        Failure::Stopped(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Stopped(format!("output: {error}"))
    }
}

/// Tells a failure and turns it into the exit code. A reader that went away (`| head`) is none.
pub(crate) fn exit_code(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Found) => ExitCode::FAILURE,
        Err(Failure::Stopped(why)) => {
            // Nobody is left to tell when standard error is gone too.
            let _ = writeln!(io::stderr(), "phalanx: {why}");
            ExitCode::FAILURE
        }
    }
}
