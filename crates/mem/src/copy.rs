//! Copying between ranks' memory, by vector moves rather than the C library's string instruction.
//!
//! From about 2 KiB on, `memcpy` may use `rep movsb`. Where one side's cache lines were last written by another core,
//! as in every ring and window, that instruction was measured to be up to four times slower than plain vector moves.

/// Copies `from` into `into`.
///
/// # Panics
///
/// When the lengths differ.
#[inline]
pub fn copy(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "a copy needs room for exactly what is copied");
    // SAFETY: the lengths are equal, and a mutable borrow overlaps no other.
    unsafe { copy_apart(into.as_mut_ptr(), from.as_ptr(), into.len()) }
}

/// Copies `len` bytes.
///
/// # Safety
///
/// Both ranges must be valid, the first for writes and the second for reads, and they must not overlap.
#[inline]
pub(crate) unsafe fn copy_apart(into: *mut u8, from: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if len >= VECTORS_FROM && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX, and the caller vouches for the ranges.
        return unsafe { vector::copy(into, from, len) };
    }
    // SAFETY: the caller vouches for the ranges.
    unsafe { std::ptr::copy_nonoverlapping(from, into, len) }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod vector {
    //! Four vectors a turn: a loop of one would be recognised and become a call of `memcpy` again.

    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256};

    /// # Safety
    ///
    /// As [`copy_apart`](super::copy_apart), on a processor with AVX.
    #[target_feature(enable = "avx")]
    pub(super) unsafe fn copy(into: *mut u8, from: *const u8, len: usize) {
        let mut done = 0;
        let (mut into, mut from) = (into, from);
        while len - done >= TURN {
            // SAFETY: a turn more lies inside both ranges.
            unsafe { turn(into, from) };
            done += TURN;
            // SAFETY: as above; one past the end at most.
            into = unsafe { into.add(TURN) };
            // SAFETY: as above.
            from = unsafe { from.add(TURN) };
        }
        // SAFETY: what is left lies inside both ranges.
        unsafe { std::ptr::copy_nonoverlapping(from, into, len - done) };
    }

    /// # Safety
    ///
    /// As [`copy`], for [`TURN`] bytes.
    #[inline]
    #[target_feature(enable = "avx")]
    #[allow(
        clippy::multiple_unsafe_ops_per_block,
        reason = "one load and store of four alike, all inside one turn"
    )]
    unsafe fn turn(into: *mut u8, from: *const u8) {
        let (into, from) = (into.cast::<__m256i>(), from.cast::<__m256i>());
        // SAFETY: the four vectors are the turn's bytes, and neither load nor store needs alignment.
        unsafe {
            let vectors = [0, 1, 2, 3].map(|index| _mm256_loadu_si256(from.add(index)));
            _mm256_storeu_si256(into, vectors[0]);
            _mm256_storeu_si256(into.add(1), vectors[1]);
            _mm256_storeu_si256(into.add(2), vectors[2]);
            _mm256_storeu_si256(into.add(3), vectors[3]);
        }
    }

    const TURN: usize = 4 * size_of::<__m256i>();
}

/// Below this the C library uses vector moves itself, and a call is cheaper than the loop.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const VECTORS_FROM: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_address_is_copied_and_nothing_beside_it() {
        let source: Vec<u8> = (0..9000_u32).map(|at| (at * 7 + at / 256) as u8).collect();
        for len in (0..300).chain(1900..2300).chain([4096, 8191, 8192]) {
            for (to, from) in [(0, 0), (1, 0), (0, 3), (5, 2)] {
                let mut room = vec![0xEE; len + to + 40];
                copy(&mut room[to..to + len], &source[from..from + len]);
                assert!(
                    room[to..to + len] == source[from..from + len],
                    "{len} bytes from {from} to {to}"
                );
                assert!(
                    room[..to].iter().chain(&room[to + len..]).all(|&byte| byte == 0xEE),
                    "{len} bytes"
                );
            }
        }
    }
}
