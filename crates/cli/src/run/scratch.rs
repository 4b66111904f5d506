//! A directory of the job's own for the short while it runs: ranks leave their reports there.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::failure::Failure;

/// A directory that is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes a directory that nobody else may enter.
    pub(super) fn make() -> Result<Scratch, Failure> {
        let directory = std::env::temp_dir();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let name = |attempt: u32| format!("phalanx-{}-{}-{attempt}", std::process::id(), now.subsec_nanos());
        let tried = (0..ATTEMPTS).map(|attempt| create(directory.join(name(attempt))));
        // A name that is taken, perhaps by somebody who wants to be written into, is left alone.
        let mut tried =
            tried.skip_while(|made| made.as_ref().is_err_and(|why| why.kind() == io::ErrorKind::AlreadyExists));
        let made = tried.next().unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()));
        made.map(Scratch).map_err(|error| Failure::Stopped(format!("{}: {error}", directory.display())))
    }

    /// Takes over a directory that another process made, with the duty to remove it.
    pub(super) fn share(path: &Path) -> Scratch {
        Scratch(path.to_owned())
    }

    pub(super) fn path(&self) -> &Path {
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

fn create(path: PathBuf) -> io::Result<PathBuf> {
    DirBuilder::new().mode(0o700).create(&path)?;
    Ok(path)
}

const ATTEMPTS: u32 = 16;
