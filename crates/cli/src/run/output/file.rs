//! The file that gets what one rank prints, as it is.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::tell;

/// The log file of one stream of a rank.
#[derive(Debug)]
pub(crate) struct LogFile {
    file: File,
    path: PathBuf,
    rank: usize,
    has_failed: bool,
}

impl LogFile {
    /// Makes the file, and its directory; what an earlier run has left there is overwritten. Errors name the path.
    pub(crate) fn create(path: PathBuf, rank: usize) -> io::Result<LogFile> {
        path.parent().map_or(Ok(()), make_room)?;
        let file = File::create(&path).map_err(|error| named(&path, &error))?;
        Ok(LogFile { file, path, rank, has_failed: false })
    }

    /// Writes what the file takes. A disk that is full may have room again later.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        if let Err(error) = self.file.write_all(bytes)
            && !std::mem::replace(&mut self.has_failed, true)
        {
            let (path, rank) = (self.path.display(), self.rank);
            tell(&format!(
                "{path}: {error}: output of rank {rank} is missing there from now on, as long as this lasts"
            ));
        }
    }
}

/// Makes a directory. Errors name it.
pub(crate) fn make_room(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory).map_err(|error| named(directory, &error))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;

    #[test]
    fn a_file_that_fails_is_tried_again() {
        let (mut reader, writer) = io::pipe().unwrap();
        fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        let file = File::from(OwnedFd::from(writer));
        let mut log = LogFile { file, path: PathBuf::from("x"), rank: 7, has_failed: false };
        while !log.has_failed {
            log.write(&[0; 4096]);
        }
        reader.read_exact(&mut [0; 4096]).unwrap();
        log.write(b"again");
        drop(log);
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert!(rest.ends_with(b"\0again"));
    }
}
