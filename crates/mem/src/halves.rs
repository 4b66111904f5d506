//! The processor's own conversion of binary16, eight numbers at a time. It is no matter of memory, but it takes `unsafe`, which has
//! its home here.

use std::arch::x86_64::{__m128i, __m256, _mm256_cvtph_ps, _mm256_cvtps_ph};

/// A processor of the level x86-64-v3, which converts binary16 by itself.
#[derive(Clone, Copy, Debug)]
pub struct Halves(());

impl Halves {
    /// This processor, if it is one.
    #[inline]
    pub fn detect() -> Option<Halves> {
        let is_there = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("lzcnt");
        is_there.then_some(Halves(()))
    }

    /// Runs `work` compiled for such a processor, as far as it is `#[inline(always)]`.
    #[inline(always)]
    pub fn vectorize<R>(self, work: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "avx2,bmi1,bmi2,f16c,fma,lzcnt")]
        fn run<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        // SAFETY: `detect` has found all of it.
        unsafe { run(work) }
    }

    /// The values of eight numbers, exactly.
    #[inline(always)]
    pub fn widen(self, bits: __m128i) -> __m256 {
        // SAFETY: `detect` has found the instruction.
        unsafe { _mm256_cvtph_ps(bits) }
    }

    /// The nearest numbers, ties to even.
    #[inline(always)]
    pub fn narrow(self, values: __m256) -> __m128i {
        const NEAREST_EVEN: i32 = 0;
        // SAFETY: as above.
        unsafe { _mm256_cvtps_ph::<NEAREST_EVEN>(values) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_converted_there_and_back() {
        let Some(halves) = Halves::detect() else { return };
        let bits: [u16; 8] = [0x0000, 0x8000, 0x3c00, 0xbc00, 0x0001, 0x7bff, 0x7c00, 0xfc00];
        let values = halves.vectorize(|| halves.widen(bytemuck::cast(bits)));
        let expected =
            [0.0, -0.0, 1.0, -1.0, 1.0 / f32::from(1_u16 << 12) / 4096.0, 65504.0, f32::INFINITY, -f32::INFINITY];
        let found: [f32; 8] = bytemuck::cast(values);
        assert_eq!(found.map(f32::to_bits), expected.map(f32::to_bits));
        let back: [u16; 8] = bytemuck::cast(halves.vectorize(|| halves.narrow(values)));
        assert_eq!(back, bits);
    }
}
