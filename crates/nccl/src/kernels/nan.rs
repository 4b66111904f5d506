//! The search for the first NaN in memory of a device: which bits are one, what the kernel is launched with, and its twin.

use phalanx_core::DType;

use crate::api::{Argument, Grid, KernelId, Span};

/// The kernels in CUDA C++.
pub const SOURCE: &str = include_str!("nan.cu");

/// The kernels by what they are called there.
pub const KERNELS: [(KernelId, &str); 4] = [
    (KernelId(3), "phalanx_nan_8"),
    (KernelId(4), "phalanx_nan_16"),
    (KernelId(5), "phalanx_nan_32"),
    (KernelId(6), "phalanx_nan_64"),
];

/// What the kernel writes where there is no NaN: the bytes that its memory has before.
pub const NONE: u64 = u64::MAX;

/// Which bits of a type are a NaN: those of the mask, from one number to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    kernel: KernelId,
    byte_len: usize,
    mask: u64,
    low: u64,
    high: u64,
}

impl Pattern {
    /// That of a type. Complex numbers are pairs of another; whole numbers are never a NaN.
    pub fn of(dtype: DType) -> Option<Pattern> {
        let [bytes, halves, words, longs] = KERNELS.map(|(kernel, _)| kernel);
        // All bits but the sign's, above infinity.
        let above = |kernel, byte_len: usize, infinity: u64| {
            let mask = u64::MAX >> (65 - 8 * byte_len);
            Some(Pattern { kernel, byte_len, mask, low: infinity + 1, high: mask })
        };
        match dtype {
            DType::F64 | DType::Complex128 => above(longs, 8, 0x7FF0 << 48),
            DType::F32 | DType::Complex64 => above(words, 4, 0x7F80 << 16),
            DType::F16 => above(halves, 2, 0x7C00),
            DType::BF16 => above(halves, 2, 0x7F80),
            DType::F8E4M3FN => above(bytes, 1, 0x7E),
            DType::F8E5M2 => above(bytes, 1, 0x7C),
            // The only one is where others have the zero below zero.
            DType::F8E4M3FNUZ | DType::F8E5M2FNUZ => {
                Some(Pattern { kernel: bytes, byte_len: 1, mask: 0xFF, low: 0x80, high: 0x80 })
            }
            _ => None,
        }
    }

    /// The kernel.
    pub fn kernel(&self) -> KernelId {
        self.kernel
    }

    /// What it is launched with to look at all of some memory. Where it writes are eight bytes, all ones before.
    pub fn arguments(&self, data: Span, first: Span) -> [Argument; 6] {
        let count = (data.byte_len() / self.byte_len) as u64;
        [
            Argument::Read(data),
            Argument::Number(count),
            Argument::Number(self.mask),
            Argument::Number(self.low),
            Argument::Number(self.high),
            Argument::Write(first),
        ]
    }

    /// How many threads look at so many bytes.
    pub fn grid(&self, byte_len: usize) -> Grid {
        let blocks = (byte_len / self.byte_len).div_ceil(THREADS as usize).clamp(1, BLOCKS as usize);
        Grid { blocks: blocks as u32, threads: THREADS }
    }
}

/// The kernel's twin: the least place it has found so far, of this memory too. `numbers` are those of [`Pattern::arguments`], in order;
/// none where they reach past the memory.
pub fn look(kernel: KernelId, data: &[u8], [count, mask, low, high]: [u64; 4], first: u64) -> Option<u64> {
    let width = 1 << KERNELS.iter().position(|(known, _)| *known == kernel)?;
    let data = data.get(..usize::try_from(count).ok()?.checked_mul(width)?)?;
    let is_nan = |element: &[u8]| {
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(element);
        (low..=high).contains(&(u64::from_le_bytes(bytes) & mask))
    };
    let found = data.chunks_exact(width).position(is_nan).map(|at| at as u64);
    Some(found.map_or(first, |at| at.min(first)))
}

const THREADS: u32 = 256;
/// More than that and blocks wait for each other: threads go on to further elements instead.
const BLOCKS: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(dtype: DType, bytes: &[u8]) -> Option<u64> {
        let pattern = Pattern::of(dtype)?;
        let count = (bytes.len() / pattern.byte_len) as u64;
        let numbers = [count, pattern.mask, pattern.low, pattern.high];
        look(pattern.kernel(), bytes, numbers, NONE).filter(|at| *at != NONE)
    }

    #[test]
    fn every_pattern_of_bits_is_judged_as_the_type_judges_it() {
        for bits in 0..=u16::MAX {
            let bytes = bits.to_le_bytes();
            let is_nan = |is: bool| is.then_some(0);
            assert_eq!(found(DType::F16, &bytes), is_nan(half::f16::from_bits(bits).is_nan()), "{bits:#x}");
            assert_eq!(found(DType::BF16, &bytes), is_nan(half::bf16::from_bits(bits).is_nan()), "{bits:#x}");
            let (single, double) = (f32::from_bits(u32::from(bits) << 16), f64::from_bits(u64::from(bits) << 48));
            assert_eq!(found(DType::F32, &single.to_le_bytes()), is_nan(single.is_nan()), "{bits:#x}");
            assert_eq!(found(DType::F64, &double.to_le_bytes()), is_nan(double.is_nan()), "{bits:#x}");
        }
        for bits in 0..=u8::MAX {
            assert_eq!(found(DType::F8E4M3FN, &[bits]).is_some(), bits & 0x7F == 0x7F);
            assert_eq!(found(DType::F8E5M2, &[bits]).is_some(), bits & 0x7F > 0x7C);
            assert_eq!(found(DType::F8E5M2FNUZ, &[bits]).is_some(), bits == 0x80);
            assert_eq!(found(DType::I8, &[bits]), None);
        }
    }

    #[test]
    fn the_first_is_found_and_no_memory_beyond() {
        let mut data = [1.0_f32; 9];
        (data[7], data[4]) = (f32::NAN, -f32::NAN);
        let bytes: Vec<u8> = data.iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!((found(DType::F32, &bytes), found(DType::F32, &bytes[..16])), (Some(4), None));
        let pattern = Pattern::of(DType::F32).expect("a type with NaN");
        let numbers = [10, pattern.mask, pattern.low, pattern.high];
        assert_eq!(look(pattern.kernel(), &bytes, numbers, NONE), None);
        assert_eq!(look(pattern.kernel(), &bytes, [9, numbers[1], numbers[2], numbers[3]], 2), Some(2));
    }
}
