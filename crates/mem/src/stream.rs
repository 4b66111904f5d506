//! Writes that leave the caches alone. A line that is written in the caches is read first, and written back later; past them it is
//! written once.

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use crate::expect::PROCESSOR_LINE;

/// Copies what is too long to stay in the caches.
///
/// # Panics
///
/// Unless both are equally long.
pub fn copy_past_caches(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len());
    let (head, lines, tail) = Line::split(into);
    let (from_head, from) = from.split_at(head.len());
    let (sources, from_tail) = from.as_chunks();
    head.copy_from_slice(from_head);
    let _finished = (!lines.is_empty()).then_some(Fence);
    lines.iter_mut().zip(sources).for_each(|(line, from)| line.stream(from));
    tail.copy_from_slice(from_tail);
}

/// Has `make` fill all of it, a short range at a time, and writes whole lines past the caches; all at once and not past them where units of
/// `unit` bytes do not begin where lines do. Ranges are of whole units, if all is. It is inlined into who calls it, with its instruction
/// set, and so is `make` if it says so.
#[inline(always)]
pub fn fill_past_caches(into: &mut [u8], unit: usize, mut make: impl FnMut(Range<usize>, &mut [u8])) {
    let whole = into.len();
    let (head, lines, tail) = Line::split(into);
    if !head.len().is_multiple_of(unit) || !size_of::<Line>().is_multiple_of(unit) {
        return make(0..whole, into);
    }
    let mut at = head.len();
    make(0..at, head);
    let _finished = Fence;
    let mut room = [Line::zeroed(); BLOCK];
    for lines in lines.chunks_mut(BLOCK) {
        let made = &mut room[..lines.len()];
        let end = at + size_of_val(made);
        make(at..end, bytemuck::cast_slice_mut(made));
        lines.iter_mut().zip(made).for_each(|(line, made)| line.stream(&made.0));
        at = end;
    }
    make(at..whole, tail);
}

/// What a processor writes at a time, where it begins.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; PROCESSOR_LINE]);

/// Orders what was written past the caches before whatever is written after.
struct Fence;

impl Line {
    /// The whole lines of some memory, and what is before and after them.
    #[inline(always)]
    fn split(bytes: &mut [u8]) -> (&mut [u8], &mut [Line], &mut [u8]) {
        bytemuck::pod_align_to_mut(bytes)
    }

    /// Becomes these bytes. A [`Fence`] comes before anybody else may look.
    #[inline(always)]
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn stream(&mut self, bytes: &[u8; PROCESSOR_LINE]) {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        let (into, _) = self.0.as_chunks_mut::<{ size_of::<__m128i>() }>();
        let (from, _) = bytes.as_chunks::<{ size_of::<__m128i>() }>();
        for (into, from) in into.iter_mut().zip(from) {
            // SAFETY: as many bytes as are loaded.
            let bytes = unsafe { _mm_loadu_si128(from.as_ptr().cast()) };
            // SAFETY: as many as are stored, aligned as a part of a line.
            unsafe { _mm_stream_si128(into.as_mut_ptr().cast(), bytes) };
        }
    }

    #[inline(always)]
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    fn stream(&mut self, bytes: &[u8; PROCESSOR_LINE]) {
        self.0 = *bytes;
    }
}

impl Drop for Fence {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a fence of the instruction set that every processor of this architecture has.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// Lines that are made at a time: few, so that the processor writes them while the next are made. By measurement: see docs/tuning.md.
const BLOCK: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_length_from_any_address_to_any_address_is_copied() {
        let from: Vec<u8> = (0..1000).map(|at| (at % 251) as u8).collect();
        for (start, len) in
            [0, 1, 7, 63, 64, 65].into_iter().flat_map(|start| [0, 1, 63, 64, 65, 800].map(|len| (start, len)))
        {
            let mut into = vec![0xEE; 1000];
            copy_past_caches(&mut into[start..start + len], &from[3..3 + len]);
            assert_eq!(into[start..start + len], from[3..3 + len], "{len} bytes to {start}");
            assert!(into[..start].iter().chain(&into[start + len..]).all(|byte| *byte == 0xEE));
        }
    }

    #[test]
    fn all_is_filled_in_order_and_in_whole_units_whatever_its_address() {
        for (start, len, unit) in [0, 1, 4, 60, 64]
            .into_iter()
            .flat_map(|start| [0, 4, 60, 64, 252, 256, 260, 800].map(|len| (start, len)))
            .flat_map(|(start, len)| [1, 2, 4].map(|unit| (start, len, unit)))
        {
            let mut into = vec![0xEE; 1000];
            let mut at = 0;
            fill_past_caches(&mut into[start..start + len], unit, |range, bytes| {
                assert!(range.start == at && range.len() == bytes.len() && range.len().is_multiple_of(unit));
                assert!(
                    range.len() <= size_of::<[Line; BLOCK]>() || !bytes.as_ptr().addr().is_multiple_of(unit),
                    "in pieces"
                );
                bytes.iter_mut().zip(range.clone()).for_each(|(byte, at)| *byte = (at % 251) as u8);
                at = range.end;
            });
            assert_eq!(at, len);
            assert!(into[start..start + len].iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
            assert!(into[..start].iter().chain(&into[start + len..]).all(|byte| *byte == 0xEE));
        }
    }
}
