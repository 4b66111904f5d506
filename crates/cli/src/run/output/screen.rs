//! The launcher's own output: a line belongs to one rank, none is lost to a slow reader, and all is given up once nobody reads.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::descriptor::write_all;
use crate::failure::tell;

/// Which of the two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// Both outputs of this process.
#[derive(Debug, Default)]
pub(super) struct Screen {
    outlets: [Outlet; 2],
}

/// One of them.
#[derive(Debug, Default)]
struct Outlet {
    /// The rank whose line has not ended, but waits to be written over.
    open: Option<usize>,
    /// Whether the last that was to be written is missing, or a part of it.
    is_broken: bool,
    /// Whether that was told.
    has_failed: bool,
    is_closed: bool,
}

impl Screen {
    /// Writes what a rank prints.
    pub(super) fn write(&mut self, stream: Stream, rank: usize, bytes: &[u8]) {
        let outlet = &mut self.outlets[stream as usize];
        let (name, failed) = match stream {
            Stream::Stdout => ("standard output", outlet.write(&io::stdout(), rank, bytes)),
            Stream::Stderr => ("standard error", outlet.write(&io::stderr(), rank, bytes)),
        };
        if let Some(error) = failed {
            tell(&format!("{name}: {error}: what ranks print is missing there from now on, as long as this lasts"));
        }
    }
}

impl Outlet {
    /// Writes all of `bytes`, waiting for the reader; nothing if it has gone. A disk that is full may have room again later,
    /// so that other failures only lose what was to be written. The first is returned.
    fn write(&mut self, handle: &impl AsFd, rank: usize, bytes: &[u8]) -> Option<Errno> {
        let is_ours = self.open == Some(rank);
        // A line that is open ends where another rank writes, and has no end of its own any more.
        let bytes = if is_ours { bytes } else { bytes.strip_prefix(b"\n").unwrap_or(bytes) };
        if self.is_closed || bytes.is_empty() {
            return None;
        }
        let is_line_open = self.is_broken || (self.open.is_some() && !is_ours);
        let before: &[u8] = if is_line_open { b"\n" } else { b"" };
        self.open = bytes.ends_with(b"\r").then_some(rank);
        let written = [before, bytes].into_iter().try_for_each(|bytes| write_all(handle, bytes, None));
        self.is_broken = written.is_err();
        self.is_closed = written == Err(Errno::PIPE);
        let error = written.err().filter(|_| !self.is_closed)?;
        (!std::mem::replace(&mut self.has_failed, true)).then_some(error)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    #[test]
    fn a_line_that_is_written_over_is_one_ranks() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut outlet = Outlet::default();
        for (rank, text) in [
            (0, "[0] 1%\r"),
            (0, "[0] 2%\r"),
            (1, "[1] 1%\r"),
            (0, "\n[0] next\n"),
            (1, "[1] 2%\r"),
            (1, "\n"),
            (0, "\n"),
            (0, "[0] end\n"),
        ] {
            assert_eq!(outlet.write(&writer, rank, text.as_bytes()), None);
        }
        drop(writer);
        let mut shown = String::new();
        reader.read_to_string(&mut shown).unwrap();
        assert_eq!(shown, "[0] 1%\r[0] 2%\r\n[1] 1%\r\n[0] next\n[1] 2%\r\n[0] end\n");
    }

    #[test]
    fn a_full_disk_is_told_once_and_tried_again() {
        let (mut reader, writer) = io::pipe().unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut outlet = Outlet::default();
        assert_eq!(outlet.write(&full, 0, b"[0] lost\n"), Some(Errno::NOSPC));
        assert_eq!(outlet.write(&full, 0, b"[0] lost\n"), None);
        assert_eq!(outlet.write(&writer, 0, b"[0] there\n"), None);
        drop(writer);
        let mut shown = String::new();
        reader.read_to_string(&mut shown).unwrap();
        assert_eq!(shown, "\n[0] there\n");
    }

    #[test]
    fn a_reader_that_has_gone_is_no_failure() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut outlet = Outlet::default();
        assert_eq!(outlet.write(&writer, 0, b"[0] lost\n"), None);
        assert!(outlet.is_closed);
    }
}
