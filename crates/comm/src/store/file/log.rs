//! The file on the disk: its lock, its records in order, and whether it is still the file that was opened. It does not know
//! what records mean.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;

use super::header::{self, Header};
use super::record::{self, Parsed};

/// A log that this process reads on as others write.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: Arc<File>,
    /// Where the next record begins: all before it was read.
    at: u64,
    /// Bytes from `at` on, as they were when they were read.
    window: Vec<u8>,
    used: usize,
}

/// What stands at the end of what was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A whole record.
    Record(Vec<u8>),
    /// Nothing.
    End,
    /// The beginning of a record, whose writer is still at it or was killed.
    Torn,
    /// Something that is no record.
    Corrupt,
}

/// Why the file cannot be used, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault(pub(super) String);

/// The lock of the file, for as long as this lives.
///
/// It is `flock`'s, which belongs to the open file: two stores of one process exclude each other too, and closing one does
/// not release the other's, as POSIX record locks would. On NFS the kernel takes it at the server for the whole file, so it
/// excludes other hosts, and forgets what it had cached of the file. A process that ends in any way releases it.
#[derive(Debug)]
pub(super) struct Locked(Arc<File>);

impl Log {
    /// Opens the file, or makes an empty one for this user alone. One that somebody else could write is refused.
    pub(super) fn open(path: &Path) -> Result<Log, Fault> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        // Where others may leave a link, they would choose the file.
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let file = options.open(path).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::LOOP) => Fault("it is a symbolic link, must be the file itself".into()),
            _ => error.into(),
        })?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(Fault("it is no regular file".into()));
        }
        check(found.uid(), found.mode(), geteuid().as_raw())?;
        Ok(Log { path: path.to_owned(), file: Arc::new(file), at: 0, window: Vec::new(), used: 0 })
    }

    /// How far the log was read, in bytes.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// The lock, unless somebody else has it. To wait for it here could not be given up at a deadline.
    pub(super) fn try_lock(&self) -> Result<Option<Locked>, Fault> {
        match self.file.try_lock() {
            Ok(()) => Ok(Some(Locked(Arc::clone(&self.file)))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(Fault(format!("it cannot be locked: {error}"))),
        }
    }

    /// Begins a look at what others wrote: refuses a file that is not the one that was opened, or was cut.
    pub(super) fn renew(&mut self) -> Result<(), Fault> {
        self.forget_window();
        let opened = self.file.metadata()?;
        let found = fs::metadata(&self.path).map_err(|error| Fault(format!("the file is gone: {error}")))?;
        if (opened.dev(), opened.ino()) != (found.dev(), found.ino()) {
            return Err(Fault("the file was replaced by another".into()));
        }
        if opened.len() < self.at {
            return Err(Fault(format!("the file was cut from at least {} to {} bytes", self.at, opened.len())));
        }
        Ok(())
    }

    /// The header, once it was written.
    pub(super) fn read_header(&mut self) -> Result<Option<Header>, Fault> {
        self.fill(header::BYTE_LEN)?;
        let header = Header::decode(&self.window).map_err(Fault)?;
        if header.is_some() {
            self.advance(header::BYTE_LEN);
        }
        Ok(header)
    }

    /// Writes the header of an empty file, or of one whose maker did not come to the end of it.
    pub(super) fn write_header(&mut self, _lock: &Locked, header: Header) -> Result<(), Fault> {
        self.file.write_all_at(&header.encode(), 0)?;
        self.at = header::BYTE_LEN as u64;
        self.forget_window();
        Ok(())
    }

    /// The next record.
    pub(super) fn next(&mut self) -> Result<Next, Fault> {
        loop {
            let needed = match record::parse(&self.window[self.used..]) {
                Parsed::Record(payload) => {
                    let payload = payload.to_vec();
                    self.advance(record::framed_byte_len(payload.len()));
                    return Ok(Next::Record(payload));
                }
                Parsed::Corrupt => return Ok(Next::Corrupt),
                Parsed::Part(needed) => needed,
            };
            if !self.fill(needed)? {
                return Ok(if self.window.is_empty() { Next::End } else { Next::Torn });
            }
        }
    }

    /// Cuts off the record that a killed writer began.
    pub(super) fn cut(&mut self, _lock: &Locked) -> Result<(), Fault> {
        self.forget_window();
        Ok(self.file.set_len(self.at)?)
    }

    /// Writes a record at the end; whoever sees all of it sees the change as made.
    pub(super) fn append(&mut self, lock: &Locked, record: &[u8]) -> Result<(), Fault> {
        if let Err(error) = self.file.write_all_at(record, self.at) {
            // What was written of it is cut here, or by the next writer.
            return self.cut(lock).and(Err(error.into()));
        }
        self.at += record.len() as u64;
        self.forget_window();
        Ok(())
    }

    /// Begins to read from the beginning.
    pub(super) fn rewind(&mut self) {
        self.at = 0;
    }

    /// Has another descriptor of the file from now on.
    #[cfg(test)]
    pub(super) fn reopen(&mut self, file: File) {
        self.file = Arc::new(file);
    }

    fn advance(&mut self, byte_len: usize) {
        self.at += byte_len as u64;
        self.used += byte_len;
    }

    fn forget_window(&mut self) {
        (self.window, self.used) = (Vec::new(), 0);
    }

    /// Reads from `at` on; whether there are `needed` bytes. Takes no memory for what is not there.
    fn fill(&mut self, needed: usize) -> Result<bool, Fault> {
        let there = usize::try_from(self.file.metadata()?.len().saturating_sub(self.at)).unwrap_or(usize::MAX);
        self.window.resize(there.min(needed.max(WINDOW)), 0);
        self.used = 0;
        let mut len = 0;
        while len < self.window.len() {
            match self.file.read_at(&mut self.window[len..], self.at + len as u64) {
                Ok(0) => break,
                Ok(read) => len += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.window.truncate(len);
        Ok(len >= needed)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // It cannot fail for a file that is open and locked; if it did, closing the file would release it.
        let _released = self.0.unlock();
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault(error.to_string())
    }
}

/// That nobody but this user, or root, can have written the file or can write it: what it says is what ranks tell each other.
fn check(owner: u32, mode: u32, user: u32) -> Result<(), Fault> {
    if owner != user && owner != ROOT {
        let must = format!("must belong to user {user} or to root: choose another path");
        return Err(Fault(format!("the file belongs to user {owner}, {must}")));
    }
    if mode & OTHERS_WRITE != 0 {
        let must = "must not be writable by others than its owner: chmod go-w, or remove it";
        return Err(Fault(format!("the file has mode {:04o}, {must}", mode & PERMISSIONS)));
    }
    Ok(())
}

const WINDOW: usize = 64 << 10;
const ROOT: u32 = 0;
/// The bits of a mode that let the file's group, or everybody, write.
const OTHERS_WRITE: u32 = 0o022;
const PERMISSIONS: u32 = 0o7777;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_somebody_else_is_refused() {
        const REGULAR: u32 = 0o100_000;
        let said = |owner, mode| check(owner, REGULAR | mode, 1000).map_err(|Fault(why)| why);
        assert_eq!((said(1000, 0o600), said(1000, 0o644), said(0, 0o600)), (Ok(()), Ok(()), Ok(())));
        let why = said(1001, 0o600).unwrap_err();
        assert!(why.contains("belongs to user 1001, must belong to user 1000 or to root"), "{why}");
        for mode in [0o620, 0o602, 0o666] {
            let why = said(0, mode).unwrap_err();
            assert!(why.contains(&format!("has mode 0{mode:o}")) && why.contains("chmod go-w"), "{why}");
        }
    }
}
