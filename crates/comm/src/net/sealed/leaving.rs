//! Records on their way out: as many in one go as a call of the system takes best.

use std::io::IoSlice;
use std::ops::Range;

use smallvec::SmallVec;

use super::HEAD;
use crate::secure::{RecordSealer, TunnelError};

/// Records whose bytes are sealed in here, or go from where the caller has them, between a head and a tag.
pub(super) struct Leaving {
    /// Sealed records, heads and tags.
    own: Box<[u8]>,
    own_len: usize,
    /// What goes out, in this order, how much that is and how much of it has gone.
    pieces: Vec<Piece>,
    len: usize,
    gone: usize,
    /// How many bytes of the caller it carries.
    carried: usize,
    /// Bytes to be sealed that lie in two places.
    staged: Vec<u8>,
}

#[derive(Debug)]
enum Piece {
    /// From here.
    Own(Range<usize>),
    /// From the caller's parts, one after the other.
    Lent(Range<usize>),
}

impl Leaving {
    pub(super) fn new(sealer: &RecordSealer) -> Leaving {
        let room = if sealer.is_clear() { SHORT } else { HIDDEN_RECORDS * RecordSealer::MOST };
        let own = vec![0; 2 * SHORT + room + (RECORDS + 1) * RecordSealer::OVERHEAD].into();
        Leaving { own, own_len: 0, pieces: Vec::with_capacity(PIECES), len: 0, gone: 0, carried: 0, staged: vec![] }
    }

    /// Begins with the next records unless there are some: what is short is put together, what is long fills several.
    pub(super) fn fill(&mut self, parts: [&[u8]; 2], sealer: &mut RecordSealer) -> Result<(), TunnelError> {
        if self.carried > 0 {
            return Ok(());
        }
        self.pieces.clear();
        (self.own_len, self.len, self.gone) = (0, 0, 0);
        let [first, second] = parts;
        if !second.is_empty() && (1..=SHORT).contains(&first.len()) {
            let mut staged = std::mem::take(&mut self.staged);
            staged.clear();
            staged.extend_from_slice(first);
            staged.extend_from_slice(&second[..second.len().min(SHORT)]);
            self.seal(&staged, sealer)?;
            self.staged = staged;
        }
        let rest = first.get(self.carried..).filter(|rest| !rest.is_empty());
        let rest = rest.unwrap_or_else(|| &second[self.carried - first.len()..]);
        for record in rest.chunks(RecordSealer::MOST).take(records(rest.len(), sealer)) {
            if sealer.is_clear() && record.len() > SHORT {
                self.embrace(record, sealer)?;
            } else {
                self.seal(record, sealer)?;
            }
        }
        Ok(())
    }

    /// What has not gone yet; none when all has.
    pub(super) fn rest<'a>(&'a self, [first, second]: [&'a [u8]; 2]) -> SmallVec<[IoSlice<'a>; PIECES]> {
        let mut gone = self.gone;
        let left = |piece: &'a Piece| {
            let bytes = match piece {
                Piece::Own(range) => &self.own[range.clone()],
                Piece::Lent(range) if range.start < first.len() => &first[range.clone()],
                Piece::Lent(range) => &second[range.start - first.len()..range.end - first.len()],
            };
            let passed = gone.min(bytes.len());
            gone -= passed;
            (passed < bytes.len()).then(|| IoSlice::new(&bytes[passed..]))
        };
        self.pieces.iter().filter_map(left).collect()
    }

    /// Takes note that so many bytes went.
    pub(super) fn pass(&mut self, sent: usize) {
        self.gone += sent;
    }

    /// How many bytes of the caller have gone, once all of them have.
    pub(super) fn take_carried(&mut self) -> Option<usize> {
        (self.gone == self.len).then(|| std::mem::take(&mut self.carried))
    }

    /// Adds a record that is sealed in here.
    fn seal(&mut self, bytes: &[u8], sealer: &mut RecordSealer) -> Result<(), TunnelError> {
        let len = sealer.seal(bytes, &mut self.own[self.own_len..])?;
        self.carried += bytes.len();
        self.add_own(len);
        Ok(())
    }

    /// Adds a record whose bytes go from where they are.
    fn embrace(&mut self, bytes: &[u8], sealer: &mut RecordSealer) -> Result<(), TunnelError> {
        let (head, tag) = sealer.embrace(bytes)?;
        self.own[self.own_len..][..HEAD].copy_from_slice(&head);
        self.add_own(HEAD);
        self.pieces.push(Piece::Lent(self.carried..self.carried + bytes.len()));
        (self.carried, self.len) = (self.carried + bytes.len(), self.len + bytes.len());
        self.own[self.own_len..][..tag.len()].copy_from_slice(&tag);
        self.add_own(tag.len());
        Ok(())
    }

    /// Has the next bytes of its own go out.
    fn add_own(&mut self, len: usize) {
        let start = self.own_len;
        (self.own_len, self.len) = (start + len, self.len + len);
        match self.pieces.last_mut() {
            Some(Piece::Own(range)) => range.end += len,
            _ => self.pieces.push(Piece::Own(start..start + len)),
        }
    }
}

/// How many records of what is left go out at once: the peer waits for the first one until all are sealed, which takes long where what they
/// carry is hidden.
fn records(left: usize, sealer: &RecordSealer) -> usize {
    match sealer.is_clear() {
        true => RECORDS,
        false if left >= 2 * HIDDEN_RECORDS * RecordSealer::MOST => HIDDEN_RECORDS,
        false => 1,
    }
}

/// Up to here a copy costs less than another piece on its own.
const SHORT: usize = 4 << 10;
/// The most records that go out at once. By measurement: see docs/tuning.md.
const RECORDS: usize = 8;
const HIDDEN_RECORDS: usize = 4;
/// The most pieces: heads and tags, and what goes between them.
const PIECES: usize = 2 * RECORDS + 1;
