//! Memory that processes of one host share: sealed, so that it cannot shrink under a reader, and mapped once per handle.
//! What is in it is another process's input; rings and boards give it meaning.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::claims::{Claims, Purpose};
use crate::memfd::{self, Mapping};
use crate::words::{self, WORD};

/// Shared memory of a fixed length, mapped into this process.
///
/// Its own accessors may race with any writer in any process: they then yield stale or mixed bytes, nothing worse.
///
/// # Who is trusted with a segment
///
/// Whoever holds the file may write any byte at any time. No length, index or counter read from a segment is believed:
/// each is read once and checked before use, and a nonsense value is a typed error. The payload that a ring or a board
/// lends as `&[u8]` without a copy is different: it stays unchanged only while the other processes follow the protocol.
/// So hand the file to processes of the same job only, and take no length or index for later use from a lent payload
/// without copying it first. A second mapping of the same file in this process counts as another process.
pub struct Segment {
    mapping: Mapping,
    byte_len: usize,
    fd: OwnedFd,
    claims: RwLock<Claims>,
    /// Whether a part of it is this process's alone by now.
    parted: AtomicBool,
}

impl Segment {
    /// A new segment of `byte_len` zero bytes, its memory reserved. Its length is sealed, and `exec` closes its file.
    ///
    /// # Errors
    ///
    /// [`Empty`](SegmentError::Empty) for no bytes, and [`Os`](SegmentError::Os) when the system refuses, such as for want of memory.
    pub fn create(byte_len: usize) -> Result<Segment, SegmentError> {
        if byte_len == 0 {
            return Err(SegmentError::Empty);
        }
        Segment::mapped(memfd::create(byte_len)?, byte_len)
    }

    /// The same of which only the first bytes are reserved. What lies behind takes no memory, and must be
    /// [reserved](Segment::reserve) before it is touched.
    ///
    /// # Errors
    ///
    /// As [`create`](Segment::create).
    pub fn create_sparse(byte_len: usize, reserved: usize) -> Result<Segment, SegmentError> {
        if byte_len == 0 {
            return Err(SegmentError::Empty);
        }
        Segment::mapped(memfd::create_sparse(byte_len, reserved.min(byte_len))?, byte_len)
    }

    /// Takes the memory of a range in which nothing is yet, and which then can be touched without fail.
    ///
    /// # Errors
    ///
    /// When the range is not inside the segment, or the system has no memory.
    pub fn reserve(&self, offset: usize, byte_len: usize) -> Result<(), SegmentError> {
        let range = self.range(offset, byte_len)?;
        memfd::reserve(self.fd.as_fd(), range)
    }

    /// Maps the pages of the first bytes now, where the system can, so that the first access to each does not wait for that.
    pub fn populate(&self, byte_len: usize) {
        self.mapping.populate(byte_len);
    }

    /// The segment that another process created and whose file it sent.
    ///
    /// # Errors
    ///
    /// [`Unsealed`](SegmentError::Unsealed) when the length could still change, [`Empty`](SegmentError::Empty) when
    /// there is no byte, and [`Os`](SegmentError::Os) when the system refuses.
    pub fn open(fd: OwnedFd) -> Result<Segment, SegmentError> {
        match memfd::sealed_byte_len(fd.as_fd())? {
            0 => Err(SegmentError::Empty),
            byte_len => Segment::mapped(fd, byte_len),
        }
    }

    /// The segment as by [`open`](Segment::open), of exactly `byte_len` bytes.
    ///
    /// # Errors
    ///
    /// As [`open`](Segment::open), and [`WrongSize`](SegmentError::WrongSize) for any other length.
    pub fn open_sized(fd: OwnedFd, byte_len: usize) -> Result<Segment, SegmentError> {
        match memfd::sealed_byte_len(fd.as_fd())? {
            0 => Err(SegmentError::Empty),
            found if found == byte_len => Segment::mapped(fd, byte_len),
            found => Err(SegmentError::WrongSize { expected: byte_len, found }),
        }
    }

    /// The file, to send to a process that shall open the segment.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The number of bytes.
    pub fn byte_len(&self) -> usize {
        self.byte_len
    }

    /// Copies `bytes` to `offset`. Others may see them in any order and partly.
    ///
    /// # Errors
    ///
    /// When the range is not inside the segment, or is in use by a ring or a board.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), SegmentError> {
        self.copy(offset, bytes.len(), |words, skip| words::store(words, skip, bytes))
    }

    /// Fills `bytes` from `offset` on. Bytes that others write meanwhile may come out old or new.
    ///
    /// # Errors
    ///
    /// When the range is not inside the segment, or is in use by a ring or a board.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), SegmentError> {
        self.copy(offset, bytes.len(), |words, skip| words::load(words, skip, bytes))
    }

    fn mapped(fd: OwnedFd, byte_len: usize) -> Result<Segment, SegmentError> {
        let mapping = Mapping::new(fd.as_fd(), byte_len)?;
        Ok(Segment { mapping, byte_len, fd, claims: RwLock::default(), parted: AtomicBool::new(false) })
    }

    /// The claims stay locked while words move, so that no ring or board is placed over them meanwhile.
    fn copy(&self, offset: usize, byte_len: usize, copy: impl FnOnce(&[AtomicU64], usize)) -> Result<(), SegmentError> {
        let range = self.range(offset, byte_len)?;
        let claims = self.claims.read().unwrap_or_else(PoisonError::into_inner);
        // What is copied is touched by whole words.
        if !claims.allow_copy(range.start / WORD * WORD..range.end.next_multiple_of(WORD)) {
            return Err(SegmentError::InUse { offset, byte_len });
        }
        copy(self.words(range), offset % WORD);
        Ok(())
    }

    fn claim(&self, range: Range<usize>, purpose: Purpose, role: usize) -> Result<(), SegmentError> {
        let (offset, byte_len) = (range.start, range.len());
        let mut claims = self.claims.write().unwrap_or_else(PoisonError::into_inner);
        if claims.take(range, purpose, role) { Ok(()) } else { Err(SegmentError::InUse { offset, byte_len }) }
    }

    fn range(&self, offset: usize, byte_len: usize) -> Result<Range<usize>, SegmentError> {
        match offset.checked_add(byte_len) {
            Some(end) if end <= self.byte_len => Ok(offset..end),
            _ => Err(SegmentError::OutOfRange { offset, byte_len, segment_byte_len: self.byte_len }),
        }
    }

    /// The words that a range inside the segment touches. The last may reach past the last byte, but not past its page.
    fn words(&self, range: Range<usize>) -> &[AtomicU64] {
        let skip = range.start % WORD;
        let count = words::touched(skip, range.len());
        // SAFETY: the offset lies inside the mapping, as the range does.
        let first = unsafe { self.mapping.start().add(range.start - skip) };
        // SAFETY: a mapping starts and ends with a page, so the words are aligned, mapped and initialised; while they
        // are not claimed by a ring or a board, this process touches them as atomic words only.
        unsafe { slice::from_raw_parts(first.cast::<AtomicU64>().as_ptr(), count) }
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Segment { byte_len, fd, .. } = self;
        f.debug_struct("Segment").field("byte_len", byte_len).field("fd", fd).finish_non_exhaustive()
    }
}

/// A role in a part of a segment, given back on drop. It keeps the segment mapped.
pub(crate) struct Claim {
    segment: Arc<Segment>,
    start: usize,
    role: usize,
}

impl Claim {
    /// Takes a role in the part of `byte_len` bytes at `offset`.
    pub(crate) fn new(
        segment: Arc<Segment>,
        offset: usize,
        byte_len: usize,
        purpose: Purpose,
        role: usize,
    ) -> Result<Claim, SegmentError> {
        let range = segment.range(offset, byte_len)?;
        segment.claim(range, purpose, role)?;
        Ok(Claim { segment, start: offset, role })
    }

    /// The first byte of the part, whose bytes are mapped and initialised while the claim lives.
    pub(crate) fn start(&self) -> NonNull<u8> {
        // SAFETY: the claimed range lies inside the mapping.
        unsafe { self.segment.mapping.start().add(self.start) }
    }

    /// Whether everything in the segment is still shared with the other processes.
    pub(crate) fn is_shared(&self) -> bool {
        !self.segment.parted.load(Ordering::Relaxed)
    }

    /// Gives this process memory of its own for a range of the part, and for what else is in its pages, with what is in them.
    pub(crate) fn part_with(&self, range: Range<usize>) -> Result<(), SegmentError> {
        let range = self.segment.range(self.start + range.start, range.len())?;
        self.segment.parted.store(true, Ordering::Relaxed);
        self.segment.mapping.part_with(self.segment.fd.as_fd(), range)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claims = self.segment.claims.write().unwrap_or_else(PoisonError::into_inner);
        claims.release(self.start, self.role);
    }
}

/// Why a segment could not be made or touched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The system refused a call.
    #[error("{call} failed for a shared segment: {source}")]
    Os {
        /// The call that failed.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Files of this process may not be so long, and the system would end it over that.
    #[error(
        "a shared segment of {byte_len} bytes is longer than files of this process may be: {limit} bytes, see `ulimit -f`"
    )]
    Limited {
        /// The length asked for.
        byte_len: usize,
        /// The longest that is allowed.
        limit: u64,
    },
    /// The file is not sealed against every change of its length, so a reader could lose its memory.
    #[error("the file of a shared segment is not sealed against shrinking, growing and further seals")]
    Unsealed,
    /// There is no byte to share.
    #[error("a shared segment of no bytes")]
    Empty,
    /// The file has another length than agreed.
    #[error("a shared segment has {found} bytes where {expected} were agreed")]
    WrongSize {
        /// The length agreed on.
        expected: usize,
        /// The length of the file.
        found: usize,
    },
    /// The range reaches past the end of the segment.
    #[error("{byte_len} bytes at offset {offset} reach outside a segment of {segment_byte_len} bytes")]
    OutOfRange {
        /// Where the range starts.
        offset: usize,
        /// How long it is.
        byte_len: usize,
        /// How long the segment is.
        segment_byte_len: usize,
    },
    /// The offset is not a multiple of the alignment that is needed there.
    #[error("offset {offset} of a segment is not a multiple of {align}")]
    Misaligned {
        /// The offset asked for.
        offset: usize,
        /// What it must be a multiple of.
        align: usize,
    },
    /// The range, or the role in it, is in use in this process.
    #[error("{byte_len} bytes at offset {offset} of a segment are in use by this process already")]
    InUse {
        /// Where the range starts.
        offset: usize,
        /// How long it is.
        byte_len: usize,
    },
}
