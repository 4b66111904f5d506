//! Rows of atomic words that threads or processes share, on the heap or in a segment. What they mean is decided elsewhere.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::Segment;
use crate::claims::Purpose;
use crate::region::{PlaceError, Region};

/// A row of atomic words of one width, zero at first, on cache lines of its own.
///
/// In a segment anybody may have written them: a value is another process's input, to be read once and checked.
///
/// ```
/// # use std::sync::atomic::{AtomicU32, Ordering};
/// let cells = phalanx_mem::Cells::<AtomicU32>::on_heap(2)?;
/// cells[1].store(7, Ordering::Relaxed);
/// assert_eq!(cells.iter().map(|cell| cell.load(Ordering::Relaxed)).collect::<Vec<_>>(), [0, 7]);
/// # Ok::<(), phalanx_mem::PlaceError>(())
/// ```
pub struct Cells<T> {
    region: Region,
    count: usize,
    word: PhantomData<T>,
}

/// The words that a row can have: 32 or 64 bits.
pub trait Word: sealed::Sealed {}

impl Word for AtomicU32 {}
impl Word for AtomicU64 {}

impl<T: Word> Cells<T> {
    /// A row of `count` words on the heap.
    ///
    /// # Errors
    ///
    /// When memory is out.
    pub fn on_heap(count: usize) -> Result<Cells<T>, PlaceError> {
        match Region::shared_on_heap(byte_len::<T>(count)?, 1)?.pop() {
            Some(region) => Ok(Cells { region, count, word: PhantomData }),
            None => unreachable!("one handle was asked for"),
        }
    }

    /// The row of `count` words at `offset` of a segment, as one of the processes that share it.
    ///
    /// # Errors
    ///
    /// When the offset is not a multiple of [`LINE`](crate::LINE), or the part is not inside the segment or in use in
    /// this process.
    pub fn in_segment(segment: Arc<Segment>, offset: usize, count: usize) -> Result<Cells<T>, PlaceError> {
        let end = offset.checked_add(byte_len::<T>(count)?).ok_or(PlaceError::TooLong)?;
        let purpose = Purpose::Cells { count, bits: size_of::<T>() * 8 };
        let region = Region::in_segment(segment, offset..end, purpose, ALL)?;
        Ok(Cells { region, count, word: PhantomData })
    }
}

impl<T: Word> Deref for Cells<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        let start = self.region.start().cast::<T>();
        // SAFETY: the region has `count` words' bytes, initialised and aligned to a line, and lives as long as `self`; it
        // is nobody else's in this process, so all that touch it do so as atomic words of this width.
        unsafe { slice::from_raw_parts(start.as_ptr(), self.count) }
    }
}

impl<T> fmt::Debug for Cells<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cells({} words of {} bits)", self.count, size_of::<T>() * 8)
    }
}

fn byte_len<T: Word>(count: usize) -> Result<usize, PlaceError> {
    count.checked_mul(size_of::<T>()).ok_or(PlaceError::TooLong)
}

mod sealed {
    use std::sync::atomic::{AtomicU32, AtomicU64};

    pub trait Sealed {}

    impl Sealed for AtomicU32 {}
    impl Sealed for AtomicU64 {}
}

/// The one role there is.
const ALL: usize = 0;

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::SegmentError;

    #[test]
    fn two_mappings_share_a_row() {
        let first = Arc::new(Segment::create(4096).expect("memfd"));
        let second = Arc::new(Segment::open(first.fd().try_clone_to_owned().expect("free")).expect("sealed"));
        let ours = Cells::<AtomicU32>::in_segment(Arc::clone(&first), 128, 3).expect("free");
        let theirs = Cells::<AtomicU32>::in_segment(second, 128, 3).expect("free");
        ours[2].store(9, Ordering::Release);
        assert_eq!(theirs.iter().map(|word| word.load(Ordering::Acquire)).collect::<Vec<_>>(), [0, 0, 9]);
        let mut bytes = [0];
        assert!(matches!(first.copy_out(139, &mut bytes), Err(SegmentError::InUse { .. })));
        assert!(matches!(first.copy_out(140, &mut bytes), Err(SegmentError::InUse { .. })), "the word of the last");
        assert!(first.copy_out(144, &mut bytes).is_ok());
    }

    #[test]
    fn rows_that_do_not_fit_or_are_taken_are_refused() {
        let segment = Arc::new(Segment::create(1024).expect("memfd"));
        let row = |offset, count| Cells::<AtomicU64>::in_segment(Arc::clone(&segment), offset, count);
        let first = row(128, 16).expect("free");
        assert!(matches!(row(128, 16), Err(PlaceError::Segment(SegmentError::InUse { .. }))));
        assert!(matches!(row(0, 17), Err(PlaceError::Segment(SegmentError::InUse { .. }))));
        assert!(matches!(row(64, 1), Err(PlaceError::Segment(SegmentError::Misaligned { .. }))));
        assert!(matches!(row(896, 17), Err(PlaceError::Segment(SegmentError::OutOfRange { .. }))));
        assert!(matches!(row(128, usize::MAX), Err(PlaceError::TooLong)));
        drop(first);
        assert_eq!(row(128, 16).expect("given back").len(), 16);
    }
}
