//! The profile that `PHALANX_PROFILE` names. What is in it is known elsewhere.

use std::env;
use std::fs;
use std::path::Path;

use phalanx_core::schedule::Profile;
use phalanx_core::{Error, Result};

/// The profile in the file that the environment names, if it names one.
pub(crate) fn of_environment() -> Result<Option<Profile>> {
    let path = env::var_os(VARIABLE).filter(|path| !path.is_empty());
    path.map(|path| read(Path::new(&path))).transpose()
}

fn read(path: &Path) -> Result<Profile> {
    let failed = |why: String| Error::setup(format!("{VARIABLE} \"{}\"", path.display()), why);
    let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    text.parse().map_err(|error: phalanx_core::schedule::ProfileError| failed(error.to_string()))
}

const VARIABLE: &str = "PHALANX_PROFILE";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_and_a_bad_one_named_with_its_line() {
        let path = env::temp_dir().join(format!("phalanx-profile-{}", std::process::id()));
        fs::write(&path, "small_in_windows = 100\n").expect("a directory for it");
        assert_eq!(read(&path), Ok(Profile::default().small_in_windows(100)));
        fs::write(&path, "# measured\nsegment = big\n").expect("a directory for it");
        let error = read(&path).expect_err("a bad line").to_string();
        fs::remove_file(&path).expect("it is there");
        assert!(error.starts_with("PHALANX_PROFILE \"") && error.contains("\": line 2: segment is \"big\""), "{error}");
        assert!(read(&path).expect_err("no file").to_string().contains("No such file"));
    }
}
