//! What the environment says of groups that are formed without a world, as PyTorch's are, and of stores that Python serves or visits: in the same
//! words as of worlds, whose ways of reading it are elsewhere.

use std::env;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use phalanx::schedule::{Profile, ProfileError};
use phalanx::{Error, JobKey, Result};

/// The job key with the variable that leads to it, where one does.
pub(crate) fn job_key() -> Result<Option<(&'static str, JobKey)>> {
    let (variable, key) = if let Some(text) = said(KEY_FD) {
        let number = text.trim().parse::<u32>().map_err(|_| wrong(KEY_FD, &text, "must be a whole number"))?;
        (KEY_FD, JobKey::inherit(number))
    } else if let Some(path) = said(KEY_FILE).filter(|path| !path.is_empty()) {
        (KEY_FILE, JobKey::read_file(path))
    } else if let Some(digits) = said(KEY).filter(|digits| !digits.is_empty()) {
        (KEY, JobKey::from_hex(&digits))
    } else {
        return Ok(None);
    };
    let key = key.map_err(|error| Error::setup(variable, error))?;
    Ok(Some((variable, key)))
}

/// The profile in the file that the environment names, if it names one.
pub(crate) fn profile() -> Result<Option<Profile>> {
    let path = env::var_os(PROFILE).filter(|path| !path.is_empty()).map(PathBuf::from);
    path.as_deref().map(read_profile).transpose()
}

/// Whether to do without a key also beyond this machine.
pub(crate) fn is_insecure() -> Result<bool> {
    let text = said(INSECURE).unwrap_or_default();
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "" | "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(wrong(INSECURE, &text, "must be 1 or 0")),
    }
}

fn read_profile(path: &Path) -> Result<Profile> {
    let failed = |why: &dyn Display| Error::setup(format!("{PROFILE} \"{}\"", path.display()), why);
    let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
    text.parse().map_err(|error: ProfileError| failed(&error))
}

fn said(variable: &str) -> Option<String> {
    env::var_os(variable).map(|text| text.to_string_lossy().into_owned())
}

/// A variable that cannot be what it says.
fn wrong(variable: &str, value: &str, must: &str) -> Error {
    Error::setup("environment", format!("{variable} is \"{value}\", {must}"))
}

const KEY_FD: &str = "PHALANX_KEY_FD";
const KEY_FILE: &str = "PHALANX_KEY_FILE";
const KEY: &str = "PHALANX_KEY";
const PROFILE: &str = "PHALANX_PROFILE";
const INSECURE: &str = "PHALANX_INSECURE";
