//! Where a command finds the job key: in a file, in an inherited descriptor, or, if it must be, in the environment.

use std::path::Path;

use phalanx_comm::secure::{JobKey, KeyError};

use crate::failure::Failure;

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Failure {
        Failure::Stopped(error.to_string())
    }
}

/// The key in `file`, or else the one that the environment leads to.
pub(crate) fn find(file: Option<&Path>) -> Result<Option<JobKey>, Failure> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(path) = file {
        return Ok(Some(JobKey::read_file(path)?));
    }
    if let Some(number) = variable("PHALANX_KEY_FD") {
        let descriptor = number.parse().map_err(|_| wrong("PHALANX_KEY_FD", &number, "the number of a descriptor"))?;
        return Ok(Some(JobKey::inherit(descriptor)?));
    }
    if let Some(path) = variable("PHALANX_KEY_FILE") {
        return Ok(Some(JobKey::read_file(path)?));
    }
    let Some(digits) = variable("PHALANX_KEY") else {
        return Ok(None);
    };
    log::warn!("PHALANX_KEY: an environment is easily read by others; better use --key-file or PHALANX_KEY_FILE");
    let key = JobKey::from_hex(&digits).map_err(|error| Failure::Stopped(format!("PHALANX_KEY: {error}")))?;
    Ok(Some(key))
}

fn wrong(name: &str, value: &str, expected: &str) -> Failure {
    Failure::Stopped(format!("{name} is \"{value}\", must be {expected}"))
}
