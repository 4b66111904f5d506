//! Whole lines that are written past the caches, in as few stores as the processor can: a line in parts waits in the core until it is whole,
//! and on an Intel Xeon that takes up to a half longer.

use bytemuck::{Pod, Zeroable};

use crate::expect::PROCESSOR_LINE;

/// What a processor writes at a time, where it begins.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Line([u8; PROCESSOR_LINE]);

impl Line {
    /// The whole lines of some memory, and what is before and after them.
    #[inline(always)]
    pub(crate) fn split(bytes: &mut [u8]) -> (&mut [u8], &mut [Line], &mut [u8]) {
        bytemuck::pod_align_to_mut(bytes)
    }

    #[inline(always)]
    pub(crate) fn bytes(lines: &[Line]) -> &[[u8; PROCESSOR_LINE]] {
        bytemuck::cast_slice(lines)
    }
}

/// How this processor writes lines past the caches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stores {
    /// Each at once, by AVX-512.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Lines,
    /// In halves, by AVX.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Halves,
    /// As every processor of its architecture can: into the caches where there is no other way.
    Any,
}

impl Stores {
    #[inline]
    pub(crate) fn detect() -> Stores {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            if is_x86_feature_detected!("avx512f") {
                return Stores::Lines;
            }
            if is_x86_feature_detected!("avx") {
                return Stores::Halves;
            }
        }
        Stores::Any
    }

    /// Writes as many lines as both have.
    #[inline]
    pub(crate) fn write(self, lines: &mut [Line], from: &[[u8; PROCESSOR_LINE]]) {
        let each = lines.iter_mut().zip(from);
        match self {
            // SAFETY: `detect` has found the instructions.
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Stores::Lines => unsafe { x86::lines(each) },
            // SAFETY: the same.
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Stores::Halves => unsafe { x86::halves(each) },
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Stores::Any => x86::quarters(each),
            #[cfg(not(all(target_arch = "x86_64", not(miri))))]
            Stores::Any => each.for_each(|(line, from)| line.0 = *from),
        }
    }
}

/// Orders what was written past the caches before whatever is written after: it comes before anybody else may look.
pub(crate) struct Fence;

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

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::x86_64::{
        __m128i, __m256i, __m512i, _mm_loadu_si128, _mm_stream_si128, _mm256_loadu_si256, _mm256_stream_si256,
        _mm512_loadu_si512, _mm512_stream_si512,
    };

    use super::{Line, PROCESSOR_LINE};

    /// A function that writes lines in parts of this type, for processors with these instructions.
    macro_rules! in_parts {
        ($name:ident, $part:ty, $load:ident, $store:ident $(, $feature:literal)?) => {
            $(#[target_feature(enable = $feature)])?
            pub(super) fn $name<'a>(each: impl Iterator<Item = (&'a mut Line, &'a [u8; PROCESSOR_LINE])>) {
                for (line, from) in each {
                    let (from, _) = from.as_chunks::<{ size_of::<$part>() }>();
                    let (into, _) = line.0.as_chunks_mut::<{ size_of::<$part>() }>();
                    for (into, from) in into.iter_mut().zip(from) {
                        // SAFETY: as many bytes as are loaded.
                        let bytes = unsafe { $load(from.as_ptr().cast()) };
                        // SAFETY: as many as are stored, aligned as a part of a line.
                        unsafe { $store(into.as_mut_ptr().cast::<$part>(), bytes) };
                    }
                }
            }
        };
    }

    in_parts!(lines, __m512i, _mm512_loadu_si512, _mm512_stream_si512, "avx512f");
    in_parts!(halves, __m256i, _mm256_loadu_si256, _mm256_stream_si256, "avx");
    in_parts!(quarters, __m128i, _mm_loadu_si128, _mm_stream_si128);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_whole_by_whatever_stores_the_processor_has() {
        let from: Vec<[u8; PROCESSOR_LINE]> =
            (0..9_u8).map(|line| std::array::from_fn(|at| line * 7 + at as u8)).collect();
        let mut ways = vec![Stores::Any, Stores::detect()];
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        ways.extend(is_x86_feature_detected!("avx").then_some(Stores::Halves));
        for stores in ways {
            let mut lines = vec![Line::zeroed(); 9];
            stores.write(&mut lines[1..8], &from);
            drop(Fence);
            assert_eq!(Line::bytes(&lines[1..8]), &from[..7], "{stores:?}");
            assert_eq!([lines[0].0, lines[8].0], [[0; PROCESSOR_LINE]; 2], "{stores:?}");
        }
    }
}
