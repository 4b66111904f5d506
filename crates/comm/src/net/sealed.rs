//! A link whose bytes are encrypted on their way. A record counts as sent once all of it has gone, so nothing waits in here
//! for somebody to come back.

use phalanx_core::link::{Link, LinkError};

use super::pipe::Pipe;
use crate::secure::{Opener, Sealer, Tunnel, TunnelError};

pub(super) struct SealedLink {
    pipe: Pipe,
    sealer: Sealer,
    opener: Opener,
    /// Bytes to be sealed that lie in two places.
    staged: Vec<u8>,
    /// The record on its way, how much of it has gone, and how many bytes of the caller it carries.
    out: Vec<u8>,
    gone: usize,
    carried: usize,
    /// What came and is no whole record yet.
    wire: Box<[u8]>,
    wire_len: usize,
    /// What was opened, and how much of it the caller has.
    plain: Vec<u8>,
    given: usize,
}

impl SealedLink {
    pub(super) fn new(pipe: Pipe, tunnel: Tunnel) -> SealedLink {
        let (sealer, opener) = tunnel.split();
        SealedLink {
            pipe,
            sealer,
            opener,
            staged: vec![],
            out: vec![],
            gone: 0,
            carried: 0,
            wire: vec![0; WIRE].into(),
            wire_len: 0,
            plain: vec![],
            given: 0,
        }
    }

    fn seal(&mut self, [first, second]: [&[u8]; 2]) -> Result<(), LinkError> {
        let from_first = first.len().min(RECORD);
        let second = &second[..second.len().min(RECORD - from_first)];
        self.staged.clear();
        let bytes = match (from_first, second) {
            (0, second) => second,
            (len, []) => &first[..len],
            (len, second) => {
                self.staged.extend_from_slice(&first[..len]);
                self.staged.extend_from_slice(second);
                &self.staged
            }
        };
        self.out.clear();
        (self.gone, self.carried) = (0, bytes.len());
        self.sealer.seal(bytes, &mut self.out).map_err(corrupt)
    }

    /// Opens what has come until there is something to give, or nothing more comes.
    fn refill(&mut self) -> Result<(), LinkError> {
        self.plain.clear();
        self.given = 0;
        while self.plain.is_empty() {
            let came = self.pipe.recv(&mut self.wire[self.wire_len..])?;
            if came == 0 {
                break;
            }
            self.wire_len += came;
            let opened = self.opener.open(&self.wire[..self.wire_len], &mut self.plain).map_err(corrupt)?;
            self.wire.copy_within(opened..self.wire_len, 0);
            self.wire_len -= opened;
        }
        Ok(())
    }
}

impl Link for SealedLink {
    fn try_send(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
        self.try_send_parts([bytes, &[]])
    }

    fn try_send_parts(&mut self, parts: [&[u8]; 2]) -> Result<usize, LinkError> {
        if self.gone == self.out.len() {
            self.seal(parts)?;
        }
        while self.gone < self.out.len() {
            match self.pipe.send([&self.out[self.gone..], &[]])? {
                0 => return Ok(0),
                sent => self.gone += sent,
            }
        }
        debug_assert!(self.carried <= parts[0].len() + parts[1].len(), "other bytes than before");
        Ok(std::mem::take(&mut self.carried))
    }

    fn try_recv(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        if self.given == self.plain.len() {
            self.refill()?;
        }
        let len = into.len().min(self.plain.len() - self.given);
        into[..len].copy_from_slice(&self.plain[self.given..self.given + len]);
        self.given += len;
        Ok(len)
    }
}

fn corrupt(error: TunnelError) -> LinkError {
    LinkError::Corrupt(error.to_string())
}

/// The most that one record carries.
const RECORD: usize = 65_519;
/// Room for a record, and for the start of the next.
const WIRE: usize = 80 << 10;
