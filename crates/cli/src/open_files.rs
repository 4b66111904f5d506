//! How many files this process, and those it starts, may have open: a connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::failure::Failure;

/// Raises the limit as far as it goes, for this process and those it starts from now on, and says what it was; nothing where there was
/// none. A system that refuses leaves it as it is.
pub(crate) fn raise() -> Option<u64> {
    let before = getrlimit(Resource::Nofile);
    if before.current != before.maximum {
        set(Rlimit { current: before.maximum, ..before });
    }
    before.current
}

/// Takes that back, for a program that is to find things as usual: some make much of a high limit.
pub(crate) fn lower(before: u64) {
    set(Rlimit { current: Some(before), ..getrlimit(Resource::Nofile) });
}

/// Fails unless `count` connections, which `what` brings with it, fit the limit.
pub(crate) fn check(what: &str, count: usize) -> Result<(), Failure> {
    let (need, limit) = (count as u64 + SPARE, getrlimit(Resource::Nofile).current);
    match limit {
        Some(limit) if limit < need => Err(Failure::Stopped(format!(
            "{what} needs {need} open files, where the hard limit (ulimit -Hn) is {limit}"
        ))),
        _ => Ok(()),
    }
}

fn set(limit: Rlimit) {
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        log::warn!("the limit of open files (ulimit -n) stays as it is: {error}");
    }
}

/// What a process has open besides its connections, generously.
const SPARE: u64 = 64;
