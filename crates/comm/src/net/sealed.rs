//! A link whose bytes travel in records, encrypted or authenticated. What is handed over counts as sent once all its records
//! have gone, so nothing waits in here for somebody to come back.

use std::io::IoSlice;
use std::ops::Range;

use phalanx_core::link::{Link, LinkError};

use super::pipe::Pipe;
use crate::secure::{RecordOpener, RecordSealer, TunnelError, record_len};

pub(super) struct SealedLink {
    pipe: Pipe,
    sealer: RecordSealer,
    opener: RecordOpener,
    leaving: Leaving,
    arriving: Arriving,
}

/// Records on their way out: first those that are whole in `front`, then the caller's own bytes behind the head of theirs and
/// before their tag.
struct Leaving {
    front: Box<[u8]>,
    front_len: usize,
    /// Bytes of the caller that travel from where they are.
    borrowed: usize,
    tag: Vec<u8>,
    /// How much has gone, and how many bytes of the caller all of it carries.
    gone: usize,
    carried: usize,
    /// Bytes to be sealed that lie in two places.
    staged: Vec<u8>,
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
        let leaving =
            Leaving { front: room(FRONT), front_len: 0, borrowed: 0, tag: vec![], gone: 0, carried: 0, staged: vec![] };
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
        if self.leaving.carried == 0 {
            self.leaving.fill(parts, &mut self.sealer).map_err(corrupt)?;
        }
        while self.leaving.gone < self.leaving.len() {
            match self.pipe.send(&self.leaving.rest(parts))? {
                0 => return Ok(0),
                sent => self.leaving.gone += sent,
            }
        }
        Ok(std::mem::take(&mut self.leaving.carried))
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

impl Leaving {
    /// Begins with the next records: what is short is put together, of what is long as much as one record carries.
    fn fill(&mut self, parts: [&[u8]; 2], sealer: &mut RecordSealer) -> Result<(), TunnelError> {
        self.tag.clear();
        (self.front_len, self.gone, self.borrowed) = (0, 0, 0);
        let mut rest = if parts[0].is_empty() { parts[1] } else { parts[0] };
        if !parts[1].is_empty() && (1..=SHORT).contains(&parts[0].len()) {
            let (beside, behind) = parts[1].split_at(parts[1].len().min(SHORT));
            self.staged.clear();
            self.staged.extend_from_slice(parts[0]);
            self.staged.extend_from_slice(beside);
            self.front_len = sealer.seal(&self.staged, &mut self.front)?;
            self.carried = self.staged.len();
            rest = behind;
        }
        let rest = &rest[..rest.len().min(RecordSealer::MOST)];
        if sealer.is_clear() && rest.len() > SHORT {
            let (head, tag) = sealer.embrace(rest)?;
            self.front[self.front_len..][..HEAD].copy_from_slice(&head);
            self.front_len += HEAD;
            self.tag.extend(tag);
            self.borrowed = rest.len();
        } else if !rest.is_empty() {
            self.front_len += sealer.seal(rest, &mut self.front[self.front_len..])?;
        }
        self.carried += rest.len();
        Ok(())
    }

    fn len(&self) -> usize {
        self.front_len + self.borrowed + self.tag.len()
    }

    /// What has not gone yet.
    fn rest<'a>(&'a self, parts: [&'a [u8]; 2]) -> [IoSlice<'a>; 3] {
        let mut gone = self.gone;
        [&self.front[..self.front_len], self.borrowed(parts), &self.tag].map(|piece| {
            let passed = gone.min(piece.len());
            gone -= passed;
            IoSlice::new(&piece[passed..])
        })
    }

    /// The caller's bytes that travel from where they are: the last of those that are carried.
    fn borrowed<'a>(&self, [first, second]: [&'a [u8]; 2]) -> &'a [u8] {
        let start = self.carried - self.borrowed;
        let place = start.checked_sub(first.len()).map_or(&first[start.min(first.len())..], |start| &second[start..]);
        debug_assert!(self.borrowed <= place.len(), "other bytes than before");
        &place[..self.borrowed]
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

/// Up to here a copy costs less than another piece on its own.
const SHORT: usize = 4 << 10;
/// Bytes of a record's length.
const HEAD: usize = 4;
/// Room for a record of two parts that are short, and for one that is as long as can be.
const FRONT: usize = 2 * SHORT + RecordSealer::MOST + 2 * RecordSealer::OVERHEAD;
/// Room for what comes at once, and for the start of a record that is not whole.
const WIRE: usize = 256 << 10;

#[cfg(test)]
mod tests;
