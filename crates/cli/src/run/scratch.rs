//! A directory of the job's own for the short while it runs: ranks leave their reports there.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A directory that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

/// A name for such a directory, which is nobody's. It holds from every directory, for ranks may change theirs.
pub(crate) fn name() -> PathBuf {
    let place = std::env::temp_dir();
    let name = format!("phalanx-{}-{:032x}", std::process::id(), fastrand::u128(..));
    std::path::absolute(&place).unwrap_or(place).join(name)
}

impl Scratch {
    /// Makes the directory, which nobody else may enter. A name that is taken, perhaps by somebody who wants to be written
    /// into, is refused.
    pub(crate) fn make(path: &Path) -> Result<Scratch, Failure> {
        let made = DirBuilder::new().mode(0o700).create(path);
        made.map_err(|error| Failure::Stopped(format!("{}: {error}", path.display())))?;
        Ok(Scratch(path.to_owned()))
    }

    /// Takes over a directory that another process makes, with the duty to remove it.
    pub(crate) fn share(path: PathBuf) -> Scratch {
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => log::warn!("{}: {error}", self.0.display()),
            _ => {}
        }
    }
}
