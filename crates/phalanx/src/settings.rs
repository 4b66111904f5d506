//! What the environment says of keys and profiles, for libraries that form groups in another way than by [joining](crate::Joining) a world.

use phalanx_comm::secure::JobKey;
use phalanx_core::schedule::Profile;
use phalanx_core::{Error, Result};

use crate::environment::{KeySource, Variables, key_source};
use crate::profile as file;

/// The job key, by `PHALANX_KEY_FD`, `PHALANX_KEY_FILE` or `PHALANX_KEY`, with the variable that leads to it; none where none is set.
///
/// # Errors
///
/// [`Setup`](phalanx_core::ErrorKind::Setup), which names the variable.
pub fn job_key() -> Result<Option<(&'static str, JobKey)>> {
    key_source(Variables::of_process())?.map(|source| load(&source)).transpose()
}

/// Whether to do without a key also beyond this machine: `PHALANX_INSECURE`.
///
/// # Errors
///
/// As [`job_key`].
pub fn insecure() -> Result<bool> {
    Variables::of_process().switch(INSECURE)
}

/// The profile in the file that `PHALANX_PROFILE` names, if it names one.
///
/// # Errors
///
/// As [`job_key`], and the line of the file that is no part of a profile.
pub fn profile() -> Result<Option<Profile>> {
    file::of_environment()
}

/// The key that lies there, with the variable that said so.
pub(crate) fn load(source: &KeySource) -> Result<(&'static str, JobKey)> {
    let (variable, key) = match source {
        KeySource::Descriptor(number) => ("PHALANX_KEY_FD", JobKey::inherit(*number)),
        KeySource::File(path) => ("PHALANX_KEY_FILE", JobKey::read_file(path)),
        KeySource::Text(digits) => {
            log::warn!("the job key is in PHALANX_KEY, where other programs may see it: prefer PHALANX_KEY_FILE");
            ("PHALANX_KEY", JobKey::from_hex(digits))
        }
    };
    Ok((variable, key.map_err(|error| Error::setup(variable, error))?))
}

pub(crate) const INSECURE: &str = "PHALANX_INSECURE";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_cannot_be_read_is_told_by_its_variable() {
        let told = |source| load(&source).map(|(variable, _)| variable).unwrap_err().to_string();
        assert!(told(KeySource::File("/none".into())).starts_with("PHALANX_KEY_FILE: key file /none: "));
        assert!(told(KeySource::Text("7".to_owned())).starts_with("PHALANX_KEY: job key has 1 of 64 digits"));
        assert_eq!(load(&KeySource::Text("7".repeat(64))).map(|(variable, _)| variable), Ok("PHALANX_KEY"));
    }
}
