//! Copies by the instruction that processors have for them.

use crate::expect::{PROCESSOR_LINE, copy_expecting};

/// Copies bytes as the processor itself does it. Where it writes whole lines it need not fetch what was there before, which another core may
/// have: on some processors that takes a third of the time, on others more than a loop.
///
/// # Panics
///
/// Unless both are equally long.
pub(crate) fn copy_whole(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len());
    if is_slow(into.as_ptr().addr(), from.as_ptr().addr()) {
        return copy_expecting(into, from);
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as many bytes as both have, which do not overlap, because one is borrowed mutably. The direction is upwards, as it is wherever
    // a function begins.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") from.len() => _,
            inout("rsi") from.as_ptr() => _,
            inout("rdi") into.as_mut_ptr() => _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    into.copy_from_slice(from);
}

/// Whether the instruction would take up to five times as long: by their places in a page, which is all that is compared at first, what is
/// written lies less than a line behind what is read, and might be what is read next.
fn is_slow(into: usize, from: usize) -> bool {
    (1..PROCESSOR_LINE).contains(&(into.wrapping_sub(from) % PAGE))
}

const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_slow_where_the_place_in_its_page_is_just_behind_that_of_what_is_read() {
        let slow = |into| is_slow(into, 7 * PAGE);
        assert_eq!([1, PAGE + 16, 3 * PAGE + 63].map(slow), [true; 3]);
        assert_eq!([0, PAGE, 64, PAGE - 1, 7 * PAGE - 16, 9 * PAGE + 64].map(slow), [false; 6]);
    }

    #[test]
    fn any_length_from_any_address_to_any_address_is_copied() {
        let from: Vec<u8> = (0..1000).map(|at| (at % 251) as u8).collect();
        for (start, len) in [0, 1, 63, 64].into_iter().flat_map(|start| [0, 1, 64, 65, 800].map(|len| (start, len))) {
            let mut into = vec![0xEE; 1000];
            copy_whole(&mut into[start..start + len], &from[3..3 + len]);
            assert_eq!(into[start..start + len], from[3..3 + len], "{len} bytes to {start}");
            assert!(into[..start].iter().chain(&into[start + len..]).all(|byte| *byte == 0xEE));
        }
    }
}
