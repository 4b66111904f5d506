//! Memory that threads or processes share, as words and payload bytes at offsets, on the heap or in a segment.
//! It checks ranges and knows no protocol: rings and boards decide who may touch what.

use std::ops::Range;
use std::ptr::NonNull;
use std::slice;

use crate::allocation::{Allocation, OutOfMemory};
use crate::expect::{copy_expecting, expect_lines};
use crate::gauge::Way;
use crate::stream::copy_past_caches;
use crate::sync::{Arc, AtomicU64, Shadow};
use crate::whole::copy_whole;
#[cfg(not(loom))]
use crate::{
    SegmentError,
    claims::Purpose,
    segment::{Claim, Segment},
};

/// Bytes shared by the holders of this region and, in a segment, by other processes. Zero at first.
pub(crate) struct Region {
    start: NonNull<u8>,
    byte_len: usize,
    home: Home,
}

/// What keeps the memory.
enum Home {
    Heap(Arc<Heap>),
    #[cfg(not(loom))]
    Segment(Claim),
}

struct Heap {
    _allocation: Allocation,
    shadow: Shadow,
}

impl Region {
    /// As many handles to one region on the heap as there are `roles`.
    pub(crate) fn shared_on_heap(byte_len: usize, roles: usize) -> Result<Vec<Region>, PlaceError> {
        let allocation = Allocation::zeroed(byte_len, HEAP_ALIGN)?;
        let start = allocation.start();
        let heap = Arc::new(Heap { _allocation: allocation, shadow: Shadow::new(byte_len) });
        Ok((0..roles).map(|_| Region { start, byte_len, home: Home::Heap(Arc::clone(&heap)) }).collect())
    }

    /// A part of a segment, for one role of one purpose.
    #[cfg(not(loom))]
    pub(crate) fn in_segment(
        segment: std::sync::Arc<Segment>,
        range: Range<usize>,
        purpose: Purpose,
        role: usize,
    ) -> Result<Region, PlaceError> {
        if !range.start.is_multiple_of(LINE) {
            return Err(SegmentError::Misaligned { offset: range.start, align: LINE }.into());
        }
        let claim = Claim::new(segment, range.start, range.len(), purpose, role)?;
        Ok(Region { start: claim.start(), byte_len: range.len(), home: Home::Segment(claim) })
    }

    /// The first byte, aligned to a line. The whole length is initialised and stays while this region lives.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The word at `offset`, where there is never payload.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(align_of::<AtomicU64>()));
        let word = self.at(offset..offset + size_of::<AtomicU64>()).cast::<AtomicU64>();
        // SAFETY: eight initialised bytes inside the region, aligned as its start is to a line; whoever touches payload
        // promised to touch no word, so all access to it is atomic.
        unsafe { word.as_ref() }
    }

    #[cfg(loom)]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        self.shadow().word(offset)
    }

    #[inline]
    pub(crate) fn byte_len(&self) -> usize {
        self.byte_len
    }

    /// Where `bytes` begin in this region, if they all lie in it.
    #[inline]
    pub(crate) fn offset_of(&self, bytes: &[u8]) -> Option<usize> {
        let offset = bytes.as_ptr().addr().checked_sub(self.start.addr().get())?;
        offset.checked_add(bytes.len()).filter(|end| *end <= self.byte_len)?;
        Some(offset)
    }

    /// Whether what this process writes here is seen by the others that share it.
    #[cfg(not(loom))]
    pub(crate) fn is_shared(&self) -> bool {
        match &self.home {
            Home::Heap(_) => true,
            Home::Segment(claim) => claim.is_shared(),
        }
    }

    /// Gives this process memory of its own for a range that other processes may still write, with what is in it.
    #[cfg(not(loom))]
    pub(crate) fn part_with(&self, range: Range<usize>) -> Result<(), SegmentError> {
        match &self.home {
            // Nobody but this process reaches it.
            Home::Heap(_) => Ok(()),
            Home::Segment(claim) => claim.part_with(range),
        }
    }

    /// Writes payload in this way.
    ///
    /// # Safety
    ///
    /// No thread of this process touches the range meanwhile, and no word is in it.
    #[inline]
    pub(crate) unsafe fn write(&self, offset: usize, bytes: &[u8], way: Way) {
        // SAFETY: as the caller promises.
        let target = unsafe { self.lend_mut(offset..offset + bytes.len()) };
        match way {
            Way::Lines => copy_expecting(target, bytes),
            Way::Whole => copy_whole(target, bytes),
            Way::Past => copy_past_caches(target, bytes),
        }
    }

    /// Says that a range, whoever has it now, is written by this thread soon.
    #[inline]
    pub(crate) fn expect_writes(&self, range: Range<usize>) {
        let byte_len = range.len();
        expect_lines(self.at(range).as_ptr(), byte_len);
    }

    /// Lends payload.
    ///
    /// # Safety
    ///
    /// No thread of this process writes the range while the slice lives, and no word is in it.
    #[inline]
    pub(crate) unsafe fn lend(&self, range: Range<usize>) -> &[u8] {
        let byte_len = range.len();
        let source = self.at(range.clone());
        self.shadow().reads(range);
        // SAFETY: the range is inside the region, which lives as long as `self`, is initialised and not written.
        unsafe { slice::from_raw_parts(source.as_ptr(), byte_len) }
    }

    /// Lends payload to be written.
    ///
    /// # Safety
    ///
    /// No thread of this process touches the range while the slice lives, and no word is in it.
    #[inline]
    #[expect(
        clippy::mut_from_ref,
        reason = "the memory is shared, and whoever calls promises that nobody else has this part"
    )]
    pub(crate) unsafe fn lend_mut(&self, range: Range<usize>) -> &mut [u8] {
        let byte_len = range.len();
        let target = self.at(range.clone());
        self.shadow().writes(range);
        // SAFETY: the range is inside the region, which lives as long as `self`, is initialised and the caller's alone.
        unsafe { slice::from_raw_parts_mut(target.as_ptr(), byte_len) }
    }

    /// The first byte of a range, which must be inside the region.
    #[inline]
    fn at(&self, range: Range<usize>) -> NonNull<u8> {
        assert!(range.start <= range.end && range.end <= self.byte_len);
        // SAFETY: inside the region by the check above, hence inside one allocation or mapping.
        unsafe { self.start.add(range.start) }
    }

    #[inline]
    fn shadow(&self) -> &Shadow {
        match &self.home {
            Home::Heap(heap) => &heap.shadow,
            #[cfg(not(loom))]
            Home::Segment(_) => &Shadow,
        }
    }
}

// SAFETY: its words are atomic, its payload is touched by unsafe calls only, whose callers rule out races, and what
// keeps it may be dropped on any thread.
unsafe impl Send for Region {}
// SAFETY: as for `Send`; a shared reference can do no more.
unsafe impl Sync for Region {}

/// Why a row of cells, a ring or a board could not be made or joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// The capacity of a ring is not a power of two.
    #[error("a ring of {capacity} bytes: the capacity must be a power of two")]
    NotPowerOfTwo {
        /// The capacity asked for.
        capacity: usize,
    },
    /// A board has no such member, or none at all.
    #[error("member {member} of a board of {members}")]
    NoSuchMember {
        /// The member asked for.
        member: usize,
        /// The number of members.
        members: usize,
    },
    /// The whole would be longer than any memory.
    #[error("a ring or board of these dimensions is longer than any memory")]
    TooLong,
    /// The role was played in this memory before, and each is played once.
    #[error("this side of the ring or seat of the board was taken before")]
    Used,
    /// The heap has no room.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The segment has no room there, or the part is in use.
    #[cfg(not(loom))]
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

/// `byte_len` rounded up to whole lines.
pub(crate) fn whole_lines(byte_len: usize) -> Option<usize> {
    byte_len.checked_next_multiple_of(LINE)
}

/// The distance that keeps two writers from slowing each other: two cache lines, as processors fetch them in pairs.
pub const LINE: usize = if cfg!(loom) { 16 } else { 128 };

const HEAP_ALIGN: usize = 128;
