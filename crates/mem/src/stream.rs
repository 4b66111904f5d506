//! Copies that leave the caches alone.

/// Copies what is too long to stay in the caches. A line that is written there is read first, and written back later; past them it is
/// written once.
///
/// # Panics
///
/// Unless both are equally long.
pub fn copy_past_caches(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len());
    let head = into.as_ptr().align_offset(PROCESSOR_LINE).min(into.len());
    let (into_head, into) = into.split_at_mut(head);
    let (from_head, from) = from.split_at(head);
    into_head.copy_from_slice(from_head);
    let (lines, into_tail) = into.as_chunks_mut();
    let (sources, from_tail) = from.as_chunks();
    lines.iter_mut().zip(sources).for_each(|(line, from)| stream(line, from));
    into_tail.copy_from_slice(from_tail);
    finish();
}

/// Copies a line, which begins as one.
#[inline(always)]
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn stream(line: &mut [u8; PROCESSOR_LINE], from: &[u8; PROCESSOR_LINE]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    let (into, _) = line.as_chunks_mut::<{ size_of::<__m128i>() }>();
    let (from, _) = from.as_chunks::<{ size_of::<__m128i>() }>();
    for (into, from) in into.iter_mut().zip(from) {
        // SAFETY: as many bytes as are loaded.
        let bytes = unsafe { _mm_loadu_si128(from.as_ptr().cast()) };
        // SAFETY: as many as are stored, aligned as a part of a line; `finish` comes before anybody else may look.
        unsafe { _mm_stream_si128(into.as_mut_ptr().cast(), bytes) };
    }
}

#[inline(always)]
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn stream(line: &mut [u8; PROCESSOR_LINE], from: &[u8; PROCESSOR_LINE]) {
    line.copy_from_slice(from);
}

/// Orders what was written past the caches before whatever is written after.
fn finish() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a fence of the instruction set that every processor of this architecture has.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// The bytes that a processor writes at a time.
const PROCESSOR_LINE: usize = 64;

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
}
