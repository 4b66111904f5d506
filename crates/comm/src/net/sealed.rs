//! A link whose bytes travel in records, encrypted or authenticated. What is handed over counts as sent once all its records
//! have gone, so nothing waits in here for somebody to come back.

mod leaving;

use std::ops::Range;

use phalanx_core::link::{Link, LinkError};

use self::leaving::Leaving;
use super::pipe::Pipe;
use crate::secure::{RecordOpener, RecordSealer, TunnelError, record_len};

pub(super) struct SealedLink {
    pipe: Pipe,
    sealer: RecordSealer,
    opener: RecordOpener,
    leaving: Leaving,
    arriving: Arriving,
}

/// What came and nobody has asked for yet: first `unread` of `plain`, then the records in `wire`. All three rooms are as long
/// as ever needed, since to clear them for each record would take a tenth of the time of sealing it.
struct Arriving {
    wire: Box<[u8]>,
    start: usize,
    end: usize,
    plain: Box<[u8]>,
    unread: Range<usize>,
}

impl SealedLink {
    pub(super) fn new(pipe: Pipe, (sealer, opener): (RecordSealer, RecordOpener)) -> SealedLink {
        let room = |len| vec![0; len].into_boxed_slice();
        let leaving = Leaving::new(&sealer);
        let arriving = Arriving { wire: room(WIRE), start: 0, end: 0, plain: room(RecordSealer::MOST), unread: 0..0 };
        SealedLink { pipe, sealer, opener, leaving, arriving }
    }

    /// Opens the next record into the front of `into`, or beside where it does not fit; how much of `into` it filled. None
    /// while it is not whole.
    fn open(&mut self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        let Some((len, record)) = self.arriving.next().map_err(corrupt)? else { return Ok(None) };
        let Arriving { wire, start, plain, unread, .. } = &mut self.arriving;
        let next = record.end;
        let filled = if let Some(into) = into.get_mut(..len) {
            self.opener.open(&wire[record], into).map_err(corrupt)?;
            len
        } else {
            self.opener.open(&wire[record], &mut plain[..len]).map_err(corrupt)?;
            *unread = 0..len;
            0
        };
        // One that was refused is refused again.
        *start = next;
        Ok(Some(filled))
    }
}

impl Link for SealedLink {
    fn try_send(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
        self.try_send_parts([bytes, &[]])
    }

    fn try_send_parts(&mut self, parts: [&[u8]; 2]) -> Result<usize, LinkError> {
        self.leaving.fill(parts, &mut self.sealer).map_err(corrupt)?;
        loop {
            if let Some(carried) = self.leaving.take_carried() {
                return Ok(carried);
            }
            let sent = self.pipe.send(&self.leaving.rest(parts))?;
            if sent == 0 {
                return Ok(0);
            }
            self.leaving.pass(sent);
        }
    }

    fn try_recv(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let mut filled = 0;
        while filled < into.len() {
            let Arriving { plain, unread, .. } = &mut self.arriving;
            let len = (into.len() - filled).min(unread.len());
            into[filled..filled + len].copy_from_slice(&plain[unread.start..unread.start + len]);
            (unread.start, filled) = (unread.start + len, filled + len);
            if filled == into.len() {
                break;
            }
            match self.open(&mut into[filled..])? {
                Some(len) => filled += len,
                None if filled > 0 => break,
                None => match self.pipe.recv(self.arriving.room())? {
                    0 => break,
                    came => self.arriving.end += came,
                },
            }
        }
        Ok(filled)
    }
}

impl Arriving {
    /// How much the next record carries, and where it lies behind its length, once it is whole.
    fn next(&self) -> Result<Option<(usize, Range<usize>)>, TunnelError> {
        let Some(len) = record_len(&self.wire[self.start..self.end])? else { return Ok(None) };
        let record = self.start + HEAD..self.start + RecordSealer::OVERHEAD + len;
        Ok((record.end <= self.end).then_some((len, record)))
    }

    /// Where the next bytes go: room for a whole record at least.
    fn room(&mut self) -> &mut [u8] {
        if self.start == self.end || self.wire.len() - self.start < RecordSealer::OVERHEAD + RecordSealer::MOST {
            self.wire.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.wire[self.end..]
    }
}

fn corrupt(error: TunnelError) -> LinkError {
    LinkError::corrupt(None, error.to_string())
}

/// Bytes of a record's length.
const HEAD: usize = 4;
/// Room for what comes at once, and for the start of a record that is not whole.
const WIRE: usize = 256 << 10;

#[cfg(test)]
mod tests;
