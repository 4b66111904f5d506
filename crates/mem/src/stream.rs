//! Writes that leave the caches alone. A line that is written in the caches is read first, and written back later; past them it is
//! written once.

use std::ops::Range;

use bytemuck::Zeroable;

use crate::lines::{Fence, Line, Stores};

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
    Stores::detect().write(lines, sources);
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
    let stores = Stores::detect();
    let mut room = [Line::zeroed(); BLOCK];
    for lines in lines.chunks_mut(BLOCK) {
        let made = &mut room[..lines.len()];
        let end = at + size_of_val(made);
        make(at..end, bytemuck::cast_slice_mut(made));
        stores.write(lines, Line::bytes(made));
        at = end;
    }
    make(at..whole, tail);
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
