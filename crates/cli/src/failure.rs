//! How a command ends: what went wrong in one line, and the exit code.

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::descriptor::write_all;

/// Why a command did not end well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It ran and found something wrong, which stands in its output already.
    Found,
    /// It could not run to its end.
    Stopped(String),
    /// The command line asks for something that cannot be.
    Usage(String),
    /// It has told what there was to tell, and ends with this code.
    Code(u8),
}

impl Failure {
    /// What went wrong with the output.
    pub(crate) fn output(error: &io::Error) -> Failure {
        Failure::Stopped(format!("output: {error}"))
    }
}

impl From<phalanx::Error> for Failure {
    fn from(error: phalanx::Error) -> Failure {
        Failure::Stopped(error.to_string())
    }
}

/// What became of something printed. A reader that went away (`| head`) has all that it wants: nothing more reaches it, but what is to be
/// found out is found out all the same, for the exit code tells it too.
pub(crate) fn printed(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::output(&error)),
        _ => Ok(()),
    }
}

/// Tells a failure and turns it into the exit code.
pub(crate) fn exit_code(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Found) => ExitCode::FAILURE,
        Err(Failure::Stopped(why)) => told(&why, ExitCode::FAILURE),
        Err(Failure::Usage(why)) => told(&format!("{why}\n\nFor more information, try '--help'."), ExitCode::from(2)),
        Err(Failure::Code(code)) => ExitCode::from(code),
    }
}

/// Says one thing on standard error. Nobody is left to tell when that is gone too, or taken by nobody.
pub(crate) fn tell(what: &str) {
    let deadline = Instant::now() + PATIENCE;
    let _ = write_all(&io::stderr(), format!("phalanx: {what}\n").as_bytes(), Some(deadline));
}

fn told(why: &str, code: ExitCode) -> ExitCode {
    tell(why);
    code
}

/// How long a reader of standard error may take that is slow, and does not let us block.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_went_away_is_no_failure_and_a_full_disk_is() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        drop(reader);
        assert!(printed(io::Write::write_all(&mut writer, b"x")).is_ok());
        let full = printed(Err(io::ErrorKind::StorageFull.into()));
        assert!(matches!(&full, Err(Failure::Stopped(why)) if why.starts_with("output: ")), "{full:?}");
    }
}
