//! The launcher's own output: a line belongs to one rank, none is lost to a slow reader, and all is given up once nobody reads.

use std::io;
use std::os::fd::AsFd;

use crate::descriptor::write_all;

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
    is_closed: bool,
}

impl Screen {
    /// Writes what a rank prints.
    pub(super) fn write(&mut self, stream: Stream, rank: usize, bytes: &[u8]) {
        let outlet = &mut self.outlets[stream as usize];
        match stream {
            Stream::Stdout => outlet.write(&io::stdout(), rank, bytes),
            Stream::Stderr => outlet.write(&io::stderr(), rank, bytes),
        }
    }
}

impl Outlet {
    /// Writes all of `bytes`, waiting for the reader; nothing if it has gone.
    fn write(&mut self, handle: &impl AsFd, rank: usize, bytes: &[u8]) {
        let is_ours = self.open == Some(rank);
        // A line that is open ends where another rank writes, and has no end of its own any more.
        let bytes = if is_ours { bytes } else { bytes.strip_prefix(b"\n").unwrap_or(bytes) };
        if self.is_closed || bytes.is_empty() {
            return;
        }
        let before: &[u8] = if self.open.is_some() && !is_ours { b"\n" } else { b"" };
        self.open = bytes.ends_with(b"\r").then_some(rank);
        let written = [before, bytes].into_iter().try_for_each(|bytes| write_all(handle, bytes, None));
        if let Err(error) = written {
            self.is_closed = true;
            log::debug!("what ranks print is dropped: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
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
            outlet.write(&writer, rank, text.as_bytes());
        }
        drop(writer);
        let mut shown = String::new();
        reader.read_to_string(&mut shown).unwrap();
        assert_eq!(shown, "[0] 1%\r[0] 2%\r\n[1] 1%\r\n[0] next\n[1] 2%\r\n[0] end\n");
    }
}
