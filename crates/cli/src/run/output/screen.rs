//! The launcher's own output: whole lines, never lost to a slow reader, given up once nobody reads.

use std::io;

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
    is_closed: [bool; 2],
}

impl Screen {
    /// Writes all of `bytes`, waiting for the reader; nothing if it has gone.
    pub(super) fn write(&mut self, stream: Stream, bytes: &[u8]) {
        if self.is_closed[stream as usize] || bytes.is_empty() {
            return;
        }
        let written = match stream {
            Stream::Stdout => write_all(&io::stdout(), bytes, None),
            Stream::Stderr => write_all(&io::stderr(), bytes, None),
        };
        if let Err(error) = written {
            self.is_closed[stream as usize] = true;
            log::debug!("{stream:?} is closed, what ranks print there is dropped: {error}");
        }
    }
}
