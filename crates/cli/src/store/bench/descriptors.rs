//! How many files this process, and those it starts, may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::failure::Failure;

/// Raises the limit of open files as far as it goes, for this process and its children.
pub(super) fn raise() -> Result<(), Failure> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return Ok(());
    }
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    raised.map_err(|error| Failure::Stopped(format!("limit of open files (ulimit -n): {error}")))
}

/// Fails unless `count` connections, which `what` brings with it, fit the limit of open files.
pub(super) fn check(what: &str, count: usize) -> Result<(), Failure> {
    let (need, limit) = (count as u64 + SPARE, getrlimit(Resource::Nofile).current);
    match limit {
        Some(limit) if limit < need => Err(Failure::Stopped(format!(
            "{what} needs {need} open files, where the hard limit (ulimit -Hn) is {limit}"
        ))),
        _ => Ok(()),
    }
}

/// What a process has open besides its connections, generously.
const SPARE: u64 = 64;
