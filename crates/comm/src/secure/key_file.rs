//! The job key in files and descriptors: 64 hexadecimal digits and a line end, in a regular file that only its owner may
//! read. A key is never taken from arguments, and from the environment by nobody here.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use super::JobKey;

impl From<KeyError> for phalanx_core::Error {
    fn from(error: KeyError) -> phalanx_core::Error {
        phalanx_core::Error::setup("job key", error)
    }
}

/// Why a key could not be read or written. No message holds any of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A file could not be opened, read or written.
    #[error("key file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no such descriptor, in which a parent was to hand the key over.
    #[error("descriptor {fd} is not open: what started this program closed it (Python: close_fds=False)")]
    Closed {
        /// Its number.
        fd: u32,
    },
    /// There is a file already where a new one was to be written.
    #[error("key file {}: is there already; a key is never overwritten", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// What is there is no regular file.
    #[error("key file {}: must be a regular file", path.display())]
    NotRegular {
        /// Its path.
        path: PathBuf,
    },
    /// The file belongs to somebody else, who may know the key or change it.
    #[error("key file {}: belongs to user {owner}, must belong to user {user} or to root", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// This process's user.
        user: u32,
    },
    /// Others than its owner may read or write the file.
    #[error("key file {}: has mode {mode:04o}, must be 0600 or less: chmod 600 {}", path.display(), path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file holds no key.
    #[error("key file {}: {what}, must be 64 hexadecimal digits", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: Cow<'static, str>,
    },
    /// The text is no key.
    #[error("job key {what}, must be 64 hexadecimal digits")]
    Format {
        /// What is wrong.
        what: Cow<'static, str>,
    },
    /// There is no memory to keep it in.
    #[error("memory for a job key: {0}")]
    Memory(#[source] io::Error),
    /// No anonymous file could be made.
    #[error("an anonymous file for the job key: {0}")]
    Anonymous(#[source] io::Error),
}

impl JobKey {
    /// Reads the key from a file.
    ///
    /// The file must be regular, belong to this user or root, and have no permission for anybody else. That is asked of
    /// the file that was opened, so a link counts as what it leads to, and nothing can be exchanged in between.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, may be read by others, or holds no key.
    pub fn read_file(path: impl AsRef<Path>) -> Result<JobKey, KeyError> {
        let path = path.as_ref();
        let failed = |source| KeyError::File { path: path.to_owned(), source };
        // Opening a pipe must not wait for a writer.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path).map_err(failed)?;
        check(&file, path)?;
        let mut digits = Zeroizing::new([0; MAX_FILE]);
        let len = fill(&file, &mut *digits).map_err(failed)?;
        JobKey::from_digits(without_line_end(&digits[..len])).map_err(|error| match error {
            KeyError::Format { what } => KeyError::Content { path: path.to_owned(), what },
            other => other,
        })
    }

    /// Writes the key to a new file that only this user may read.
    ///
    /// # Errors
    ///
    /// When there is such a file already, or it cannot be written; then none is left.
    pub fn write_file(&self, path: impl AsRef<Path>) -> Result<(), KeyError> {
        let path = path.as_ref();
        let failed = |source| KeyError::File { path: path.to_owned(), source };
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let mut file = opened.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => KeyError::Exists { path: path.to_owned() },
            _ => failed(source),
        })?;
        let written = self.write(&mut file).and_then(|()| file.sync_all());
        written.inspect_err(|_| drop(std::fs::remove_file(path))).map_err(failed)
    }

    /// Reads the key from descriptor `fd` of this process, which a parent opened, such as one of
    /// [`to_memfd`](JobKey::to_memfd).
    ///
    /// The same is asked of it as of a file. It is read through `/proc/self/fd`, so its position does not matter. The
    /// descriptor stays open, and programs that this process starts inherit it unless they are started without.
    ///
    /// # Errors
    ///
    /// As [`read_file`](JobKey::read_file), where the descriptor is not open, and where there is no `/proc`.
    pub fn inherit(fd: u32) -> Result<JobKey, KeyError> {
        let descriptors = Path::new("/proc/self/fd");
        let number = descriptors.join(fd.to_string());
        // The link itself: what it leads to may have no name any more.
        match number.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound && descriptors.exists() => {
                Err(KeyError::Closed { fd })
            }
            _ => JobKey::read_file(number),
        }
    }

    /// An anonymous file that holds the key and can no longer be changed, to be inherited by a child. `exec` closes it
    /// unless it is handed over under another number.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn to_memfd(&self) -> Result<std::os::fd::OwnedFd, KeyError> {
        self.memfd().map_err(KeyError::Anonymous)
    }

    fn memfd(&self) -> io::Result<std::os::fd::OwnedFd> {
        use rustix::fs::{MemfdFlags, Mode, SealFlags};
        use rustix::io::Errno;

        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 do not know the last flag, and some later ones refuse a memfd without it.
        let fd = match rustix::fs::memfd_create("phalanx-key", flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => rustix::fs::memfd_create("phalanx-key", flags)?,
            created => created?,
        };
        rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(fd);
        self.write(&mut file)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file.into())
    }

    /// At once, so that a reader sees a whole key or none.
    fn write(&self, file: &mut File) -> io::Result<()> {
        let mut line = Zeroizing::new([b'\n'; 65]);
        line[..64].copy_from_slice(self.to_hex().as_bytes());
        file.write_all(&*line)
    }
}

/// Whether the file may hold a secret.
fn check(file: &File, path: &Path) -> Result<(), KeyError> {
    let path = || path.to_owned();
    let metadata = file.metadata().map_err(|source| KeyError::File { path: path(), source })?;
    let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    let mode = metadata.mode() & 0o7777;
    if !metadata.is_file() {
        return Err(KeyError::NotRegular { path: path() });
    }
    if owner != user && owner != 0 {
        return Err(KeyError::Owner { path: path(), owner, user });
    }
    if mode & !0o600 != 0 {
        return Err(KeyError::Mode { path: path(), mode });
    }
    Ok(())
}

/// Reads until the end or until the buffer is full, and says how much.
fn fill(mut file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

fn without_line_end(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

/// Digits and line end, and one byte more, by which a longer file is known.
const MAX_FILE: usize = 64 + 2 + 1;
