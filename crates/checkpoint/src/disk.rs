//! What is asked of a disk. Everything that a save does to one goes through here, step by step, so that it can be stopped at any.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use crate::names;

/// A place for files.
///
/// # Errors
///
/// What the place says of the path, as [`std::fs`] does of one in the file system.
#[expect(clippy::missing_errors_doc, reason = "the trait says it once for all")]
pub trait Disk: Send + Sync {
    /// Makes a directory and those above it, unless they are there.
    fn make_directory(&self, path: &Path) -> io::Result<()>;

    /// The same, and returns once those that were made would survive a loss of power.
    fn make_lasting_directory(&self, path: &Path) -> io::Result<()> {
        let is_missing = |path: &&Path| self.list(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        let above = path.ancestors().take_while(|path| !path.as_os_str().is_empty());
        let missing: Vec<_> = above.take_while(is_missing).collect();
        self.make_directory(path)?;
        missing.into_iter().try_for_each(|made| self.sync(names::parent(made)))
    }

    /// Makes a file that is empty.
    fn create(&self, path: &Path) -> io::Result<()>;

    /// Adds bytes at the end of a file.
    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Returns once a file, or the entries of a directory, would survive a loss of power.
    fn sync(&self, path: &Path) -> io::Result<()>;

    /// Gives a file another name, in place of what has that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with all that is in it.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// How many bytes a file has; [`ErrorKind::InvalidData`] where it is no regular file, which may have no end.
    fn byte_len(&self, path: &Path) -> io::Result<u64>;

    /// All bytes of a regular file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The names of what is in a directory.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Whether there is a file of this name. What cannot be found out is an error: whoever takes it for no would pass over what is there, or
    /// remove it.
    fn has(&self, path: &Path) -> io::Result<bool>;
}

/// The file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn create(&self, path: &Path) -> io::Result<()> {
        File::create(path).map(drop)
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        OpenOptions::new().append(true).open(path)?.write_all(bytes)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn byte_len(&self, path: &Path) -> io::Result<u64> {
        let found = fs::metadata(path)?;
        let odd = || io::Error::new(ErrorKind::InvalidData, "it is no regular file");
        found.is_file().then_some(found.len()).ok_or_else(odd)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // Before it is opened, which for a pipe may take as long as reading it.
        let byte_len = self.byte_len(path)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(usize::try_from(byte_len).unwrap_or(usize::MAX))?;
        File::open(path)?.take(byte_len).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let names =
            fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    fn has(&self, path: &Path) -> io::Result<bool> {
        match fs::metadata(path) {
            Ok(found) => Ok(found.is_file()),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
