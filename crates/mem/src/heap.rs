//! Memory of one member that the other members of its host can read where it is: blocks of a part of a segment, handed out
//! as buffers. What is read in them, and when, is the board's to say.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::claims::Purpose;
use crate::region::{PlaceError, Region};
use crate::{Buffer, OutOfMemory, Segment, SegmentError};

/// One member's part of a segment, from which it takes its buffers. Its pages are had when they are first taken, and kept.
pub struct Heap {
    region: Region,
    segment: Arc<Segment>,
    start: usize,
    /// Free runs of bytes by where they begin, neighbours joined, and up to where pages were had.
    state: Mutex<State>,
}

struct State {
    free: BTreeMap<usize, usize>,
    reserved: usize,
}

/// A block that goes back to its heap when its buffer is dropped.
struct Block {
    heap: Arc<Heap>,
    start: usize,
    byte_len: usize,
}

impl Heap {
    /// The heap of `byte_len` bytes at `offset` of a segment, all of them as created.
    ///
    /// # Errors
    ///
    /// When the part is not inside the segment or in use, or does not begin with a page.
    pub fn in_segment(segment: Arc<Segment>, offset: usize, byte_len: usize) -> Result<Arc<Heap>, PlaceError> {
        if !offset.is_multiple_of(PAGE) {
            return Err(SegmentError::Misaligned { offset, align: PAGE }.into());
        }
        let range = offset..offset.checked_add(byte_len).ok_or(PlaceError::TooLong)?;
        let region = Region::in_segment(Arc::clone(&segment), range, Purpose::Heap, OWNER)?;
        let state = Mutex::new(State { free: BTreeMap::from([(0, byte_len)]), reserved: 0 });
        Ok(Arc::new(Heap { region, segment, start: offset, state }))
    }

    /// A buffer of zeroed bytes, aligned to a page.
    ///
    /// # Errors
    ///
    /// When the heap has no run that long, or the system no memory for it.
    pub fn allocate(self: &Arc<Heap>, byte_len: usize) -> Result<Buffer, OutOfMemory> {
        let out = OutOfMemory { byte_len };
        let taken = byte_len.max(1).checked_next_multiple_of(PAGE).ok_or(out)?;
        let start = self.take(taken).ok_or(out)?;
        let block = Block { heap: Arc::clone(self), start, byte_len: taken };
        // SAFETY: the offset lies inside the region, as the whole run does.
        let first = unsafe { self.region.start().add(start) };
        // SAFETY: the run is inside the region, which the block keeps, and was handed out to nobody else; its pages are
        // reserved, so touching them cannot fail. In this process nobody but the buffer touches it: peers' views are
        // other mappings.
        let mut buffer = unsafe { Buffer::foreign(first, byte_len, block) };
        buffer.as_bytes_mut().fill(0);
        Ok(buffer)
    }

    /// The first free run that is long enough, its pages had.
    fn take(&self, byte_len: usize) -> Option<usize> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (&start, &run) = state.free.iter().find(|(_, run)| **run >= byte_len)?;
        let end = start + byte_len;
        if end > state.reserved {
            self.segment.reserve(self.start + state.reserved, end - state.reserved).ok()?;
            state.reserved = end;
        }
        state.free.remove(&start);
        if run > byte_len {
            state.free.insert(end, run - byte_len);
        }
        Some(start)
    }

    fn give_back(&self, mut start: usize, mut byte_len: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(run) = state.free.remove(&(start + byte_len)) {
            byte_len += run;
        }
        if let Some((&before, &run)) = state.free.range(..start).next_back()
            && before + run == start
        {
            state.free.remove(&before);
            (start, byte_len) = (before, run + byte_len);
        }
        state.free.insert(start, byte_len);
    }
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heap").field("start", &self.start).finish_non_exhaustive()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.heap.give_back(self.start, self.byte_len);
    }
}

/// The role of the one who hands out a heap's blocks; views of it are other roles.
pub(crate) const OWNER: usize = 0;
/// What blocks begin and end with.
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn heap(byte_len: usize) -> Arc<Heap> {
        let segment = Segment::create_sparse(PAGE + byte_len, PAGE).expect("memfd");
        Heap::in_segment(Arc::new(segment), PAGE, byte_len).expect("free")
    }

    #[test]
    fn blocks_are_apart_zeroed_and_used_again() {
        let heap = heap(4 * PAGE);
        let mut buffers: Vec<Buffer> = [1, PAGE, PAGE + 1].map(|len| heap.allocate(len).expect("room")).into();
        for (number, buffer) in buffers.iter_mut().enumerate() {
            assert!(buffer.as_bytes().iter().all(|byte| *byte == 0));
            assert!(buffer.as_bytes().as_ptr().addr().is_multiple_of(PAGE));
            buffer.as_bytes_mut().fill(number as u8 + 1);
        }
        for (number, buffer) in buffers.iter().enumerate() {
            assert!(buffer.as_bytes().iter().all(|byte| *byte == number as u8 + 1));
        }
        assert_eq!(heap.allocate(1).err(), Some(OutOfMemory { byte_len: 1 }));
        drop(buffers.remove(1));
        let again = heap.allocate(PAGE).expect("room again");
        assert!(again.as_bytes().iter().all(|byte| *byte == 0));
        drop((buffers, again));
        assert_eq!(heap.allocate(4 * PAGE).map(|all| all.byte_len()), Ok(4 * PAGE));
    }

    #[test]
    fn a_heap_begins_with_a_page() {
        let segment = Arc::new(Segment::create(3 * PAGE).expect("memfd"));
        for offset in [1, 128, PAGE - 128, PAGE + 2048] {
            let error = Heap::in_segment(Arc::clone(&segment), offset, PAGE).expect_err("within a page");
            let PlaceError::Segment(SegmentError::Misaligned { align, .. }) = error else { panic!("{error}") };
            assert_eq!(align, PAGE);
        }
        assert!(Heap::in_segment(segment, PAGE, PAGE).is_ok());
    }

    #[test]
    fn what_no_heap_can_hold_is_refused() {
        let heap = heap(PAGE);
        for byte_len in [PAGE + 1, usize::MAX, usize::MAX - PAGE] {
            assert_eq!(heap.allocate(byte_len).err(), Some(OutOfMemory { byte_len }));
        }
    }
}
