//! The notice: where the store is, the key to it, and who serves it. One line each, in a file of this user alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use phalanx_comm::secure::JobKey;
use phalanx_comm::store::StoreAddress;
use zeroize::Zeroizing;

use super::hold::{Hold, may_be_held};
use super::writer::Writer;

/// What rank 0 tells the others.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    pub(crate) address: StoreAddress,
    pub(crate) key: JobKey,
    pub(crate) writer: Writer,
}

/// A notice that is taken down when this is dropped.
#[derive(Debug)]
pub(crate) struct Posted {
    path: PathBuf,
    /// Let go of last: a notice that hangs is held.
    _hold: Hold,
}

/// A notice as it was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) notice: Notice,
    /// Whether whoever put it up may still run.
    pub(super) is_believed: bool,
}

impl Notice {
    /// Puts the notice up at `path`, where there must be none.
    pub(super) fn post(&self, path: &Path) -> io::Result<Posted> {
        let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        name.push(format!(".{}", std::process::id()));
        let draft = path.with_file_name(name);
        // A draft of this name is one of a dead process: numbers are given again.
        let _ = fs::remove_file(&draft);
        // Linked rather than renamed, so that it is seen whole and takes nobody's place.
        let posted = self.write(&draft).and_then(|hold| fs::hard_link(&draft, path).map(|()| hold));
        let _ = fs::remove_file(&draft);
        posted.map(|hold| Posted { path: path.to_owned(), _hold: hold })
    }

    /// A file with the notice, held before anybody finds it.
    fn write(&self, path: &Path) -> io::Result<Hold> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(self.encode().as_bytes())?;
        Ok(Hold::take(file))
    }

    /// The notice at `path`, if there is one. A file that is none of this user's notices is an error.
    pub(super) fn read(path: &Path) -> io::Result<Option<Found>> {
        let file = match OpenOptions::new().read(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let data = file.metadata()?;
        if !data.is_file() || data.uid() != rustix::process::geteuid().as_raw() || data.mode() & 0o077 != 0 {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "not a file that this user alone can read"));
        }
        let mut text = Zeroizing::new(String::with_capacity(MAX_BYTE_LEN));
        (&file).take(MAX_BYTE_LEN as u64).read_to_string(&mut text)?;
        let odd = || io::Error::new(io::ErrorKind::InvalidData, "not a notice of this version");
        Notice::decode(&text).map(|notice| Some(notice.found_in(&file))).ok_or_else(odd)
    }

    fn found_in(self, file: &File) -> Found {
        // The hold is asked only where its number does not tell: a child that it has forked may have that too.
        let is_believed = self.writer.lives().unwrap_or_else(|| may_be_held(file));
        Found { notice: self, is_believed }
    }

    fn encode(&self) -> Zeroizing<String> {
        let Writer { host, namespace, pid, began } = &self.writer;
        let (address, key) = (&self.address, self.key.to_hex());
        let mut text = Zeroizing::new(String::with_capacity(MAX_BYTE_LEN));
        text.push_str(&format!("{TITLE}\n{address}\n{host}\n{namespace}\n{pid}\n{began}\n"));
        text.push_str(&key);
        text.push('\n');
        text
    }

    fn decode(text: &str) -> Option<Notice> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        if lines.next()? != TITLE {
            return None;
        }
        let address = lines.next()?.parse().ok()?;
        let (host, namespace) = (lines.next()?.to_owned(), lines.next()?.to_owned());
        let (pid, began) = (lines.next()?.parse().ok()?, lines.next()?.parse().ok()?);
        let key = JobKey::from_hex(lines.next()?).ok()?;
        let writer = Writer { host, namespace, pid, began };
        lines.next().is_none().then_some(Notice { address, key, writer })
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            log::debug!("{}: {error}", self.path.display());
        }
    }
}

const TITLE: &str = "phalanx notice 1";
const MAX_BYTE_LEN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_says_where_and_gives_the_key() {
        let address: StoreAddress = "127.0.0.1:7".parse().unwrap();
        let notice = Notice { address, key: JobKey::mint().unwrap(), writer: Writer::this_process() };
        let text = notice.encode();
        let read = Notice::decode(&text).unwrap();
        assert_eq!((&read.address, &read.writer), (&notice.address, &notice.writer));
        assert_eq!(*read.key.to_hex(), *notice.key.to_hex());
        assert!((0..text.len()).all(|cut| Notice::decode(&text[..cut]).is_none()));
        assert!(Notice::decode(&format!("{}\n", *text)).is_none());
        assert!(!format!("{notice:?}").contains(&**notice.key.to_hex()));
    }
}
