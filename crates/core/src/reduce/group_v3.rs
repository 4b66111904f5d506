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
        let Halves(v3, conversions) = self;
        let [a, b, c, d] = all_canonical(v3, cast(wide));
        cast([conversions.narrow(a), conversions.narrow(b), conversions.narrow(c), conversions.narrow(d)])
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
        let Brains(v3) = self;
        let [first_lower, last_lower, first_upper, last_upper] = all_canonical(v3, cast(wide));
        cast([merge(v3, cast(first_lower), cast(first_upper)), merge(v3, cast(last_lower), cast(last_upper))])
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

/// The words of these parts, each rounded to its upper half, nearest even. Both are rounded at once, since what an instruction does
/// with 32-bit words it does with twice as many of 16.
#[inline(always)]
fn merge(v3: V3, lower: __m256i, upper: __m256i) -> __m256i {
    const UPPER_PARTS: i32 = 0b1010_1010;
    let (avx, simd) = (v3.avx, v3.avx2);
    let kept = simd._mm256_blend_epi16::<UPPER_PARTS>(simd._mm256_srli_epi32::<16>(lower), upper);
    let dropped = simd._mm256_blend_epi16::<UPPER_PARTS>(lower, simd._mm256_slli_epi32::<16>(upper));
    // Up goes what drops more than half, or half beside an odd part that is kept.
    let odd = simd._mm256_and_si256(kept, avx._mm256_set1_epi16(1));
    let over_half = simd._mm256_subs_epu16(simd._mm256_adds_epu16(dropped, odd), avx._mm256_set1_epi16(HALF));
    let carried = simd._mm256_min_epu16(over_half, avx._mm256_set1_epi16(1));
    simd._mm256_add_epi16(kept, carried)
}

/// Half of what the lowest kept bit is worth.
const HALF: i16 = 0x8000_u16 as i16;

/// The upper part of a word.
const UPPER: i32 = 0xffff_0000_u32 as i32;

/// Replaces NaNs, which are seldom there: one look at a whole group is less work than to replace what is none.
#[inline(always)]
fn all_canonical(v3: V3, wide: [__m256; 4]) -> [__m256; 4] {
    let [a, b, c, d] = wide;
    let is_nan =
        v3.avx._mm256_or_ps(v3.avx._mm256_cmp_ps::<_CMP_UNORD_Q>(a, b), v3.avx._mm256_cmp_ps::<_CMP_UNORD_Q>(c, d));
    if v3.avx._mm256_movemask_ps(is_nan) == 0 {
        return wide;
    }
    [canonical(v3, a), canonical(v3, b), canonical(v3, c), canonical(v3, d)]
}

/// Replaces NaNs.
#[inline(always)]
fn canonical(v3: V3, wide: __m256) -> __m256 {
    let is_nan = v3.avx._mm256_cmp_ps::<_CMP_UNORD_Q>(wide, wide);
    v3.avx._mm256_blendv_ps(wide, v3.avx._mm256_set1_ps(f32::NAN), is_nan)
}
