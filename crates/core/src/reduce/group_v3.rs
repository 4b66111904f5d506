//! Groups on AVX2.

use std::arch::x86_64::{__m128i, __m256, __m256i, _CMP_UNORD_Q};

use phalanx_mem::Halves as Conversions;
use pulp::cast;
use pulp::x86::V3;

use super::group::{Group, LANES};
use super::isa::Isa;

/// Binary32, of which only NaNs change.
#[derive(Clone, Copy)]
pub(super) struct Singles(V3);

/// Binary16, converted in hardware.
#[derive(Clone, Copy)]
pub(super) struct Halves(V3, Conversions);

/// Bfloat16. A pair is a 32-bit word whose parts are widened and merged where they are, which spares shuffles; the lower
/// parts of all words come first.
#[derive(Clone, Copy)]
pub(super) struct Brains(V3);

impl Group<f32> for Singles {
    type Bytes = [u8; LANES * size_of::<f32>()];

    #[inline(always)]
    fn on(isa: Isa) -> Option<Singles> {
        isa.v3().map(|(v3, _)| Singles(v3))
    }

    #[inline(always)]
    fn widen(self, bytes: &Self::Bytes) -> [f32; LANES] {
        cast(*bytes)
    }

    #[inline(always)]
    fn narrow(self, wide: [f32; LANES]) -> Self::Bytes {
        let [a, b, c, d]: [__m256; 4] = cast(wide);
        let Singles(v3) = self;
        cast([canonical(v3, a), canonical(v3, b), canonical(v3, c), canonical(v3, d)])
    }
}

impl Group<f32> for Halves {
    type Bytes = [u8; LANES * size_of::<u16>()];

    #[inline(always)]
    fn on(isa: Isa) -> Option<Halves> {
        isa.v3().map(|(v3, conversions)| Halves(v3, conversions))
    }

    #[inline(always)]
    fn widen(self, bytes: &Self::Bytes) -> [f32; LANES] {
        let [a, b, c, d]: [__m128i; 4] = cast(*bytes);
        let Halves(_, conversions) = self;
        cast([conversions.widen(a), conversions.widen(b), conversions.widen(c), conversions.widen(d)])
    }

    #[inline(always)]
    fn narrow(self, wide: [f32; LANES]) -> Self::Bytes {
        let [a, b, c, d]: [__m256; 4] = cast(wide);
        let Halves(v3, conversions) = self;
        cast([
            conversions.narrow(canonical(v3, a)),
            conversions.narrow(canonical(v3, b)),
            conversions.narrow(canonical(v3, c)),
            conversions.narrow(canonical(v3, d)),
        ])
    }
}

impl Group<f32> for Brains {
    type Bytes = [u8; LANES * size_of::<u16>()];

    #[inline(always)]
    fn on(isa: Isa) -> Option<Brains> {
        isa.v3().map(|(v3, _)| Brains(v3))
    }

    #[inline(always)]
    fn widen(self, bytes: &Self::Bytes) -> [f32; LANES] {
        let [first, last]: [__m256i; 2] = cast(*bytes);
        let Brains(v3) = self;
        cast([lower(v3, first), lower(v3, last), upper(v3, first), upper(v3, last)])
    }

    #[inline(always)]
    fn narrow(self, wide: [f32; LANES]) -> Self::Bytes {
        let [first_lower, last_lower, first_upper, last_upper]: [__m256; 4] = cast(wide);
        cast([merge(self.0, first_lower, first_upper), merge(self.0, last_lower, last_upper)])
    }
}

/// The lower parts of words.
#[inline(always)]
fn lower(v3: V3, words: __m256i) -> __m256i {
    v3.avx2._mm256_slli_epi32::<16>(words)
}

/// The upper parts.
#[inline(always)]
fn upper(v3: V3, words: __m256i) -> __m256i {
    v3.avx2._mm256_and_si256(words, v3.avx._mm256_set1_epi32(UPPER))
}

/// The words of these parts.
#[inline(always)]
fn merge(v3: V3, lower: __m256, upper: __m256) -> __m256i {
    const UPPER_PARTS: i32 = 0b1010_1010;
    let lower = v3.avx2._mm256_srli_epi32::<16>(round_to_upper(v3, cast(canonical(v3, lower))));
    let upper = round_to_upper(v3, cast(canonical(v3, upper)));
    v3.avx2._mm256_blend_epi16::<UPPER_PARTS>(lower, upper)
}

/// The upper part of a word.
const UPPER: i32 = 0xffff_0000_u32 as i32;

/// Replaces NaNs.
#[inline(always)]
fn canonical(v3: V3, wide: __m256) -> __m256 {
    let is_nan = v3.avx._mm256_cmp_ps::<_CMP_UNORD_Q>(wide, wide);
    v3.avx._mm256_blendv_ps(wide, v3.avx._mm256_set1_ps(f32::NAN), is_nan)
}

/// Rounds to nearest even so that the upper parts of the words are right.
#[inline(always)]
fn round_to_upper(v3: V3, words: __m256i) -> __m256i {
    let simd = v3.avx2;
    let odd = simd._mm256_and_si256(simd._mm256_srli_epi32::<16>(words), v3.avx._mm256_set1_epi32(1));
    simd._mm256_add_epi32(simd._mm256_add_epi32(words, v3.avx._mm256_set1_epi32(0x7fff)), odd)
}
