//! Groups on AVX-512.

use std::arch::x86_64::{__m256i, __m512, __m512i};

use pulp::cast;
use pulp::x86::V4;

use super::group::{Group, LANES};
use super::isa::Isa;

/// Binary32, of which only NaNs change.
#[derive(Clone, Copy)]
pub(super) struct Singles(V4);

/// Binary16, converted in hardware.
#[derive(Clone, Copy)]
pub(super) struct Halves(V4);

/// Bfloat16. A pair is a 32-bit word whose parts are widened and merged where they are, which spares shuffles; the lower
/// parts of all words come first.
#[derive(Clone, Copy)]
pub(super) struct Brains(V4);

impl Group<f32> for Singles {
    type Bytes = [u8; LANES * size_of::<f32>()];

    #[inline(always)]
    fn on(isa: Isa) -> Option<Singles> {
        isa.v4().map(Singles)
    }

    #[inline(always)]
    fn widen(self, bytes: &Self::Bytes) -> [f32; LANES] {
        cast(*bytes)
    }

    #[inline(always)]
    fn narrow(self, wide: [f32; LANES]) -> Self::Bytes {
        let [first, last]: [__m512; 2] = cast(wide);
        cast([canonical(self.0, first), canonical(self.0, last)])
    }
}

impl Group<f32> for Halves {
    type Bytes = [u8; LANES * size_of::<u16>()];

    #[inline(always)]
    fn on(isa: Isa) -> Option<Halves> {
        isa.v4().map(Halves)
    }

    #[inline(always)]
    fn widen(self, bytes: &Self::Bytes) -> [f32; LANES] {
        let simd = self.0.avx512f;
        let [first, last]: [__m256i; 2] = cast(*bytes);
        cast([simd._mm512_cvtph_ps(first), simd._mm512_cvtph_ps(last)])
    }

    #[inline(always)]
    fn narrow(self, wide: [f32; LANES]) -> Self::Bytes {
        const NEAREST_EVEN: i32 = 0;
        let simd = self.0.avx512f;
        let [first, last]: [__m512; 2] = cast(wide);
        let first = simd._mm512_cvtps_ph::<NEAREST_EVEN>(canonical(self.0, first));
        let last = simd._mm512_cvtps_ph::<NEAREST_EVEN>(canonical(self.0, last));
        cast([first, last])
    }
}

impl Group<f32> for Brains {
    type Bytes = [u8; LANES * size_of::<u16>()];

    #[inline(always)]
    fn on(isa: Isa) -> Option<Brains> {
        isa.v4().map(Brains)
    }

    #[inline(always)]
    fn widen(self, bytes: &Self::Bytes) -> [f32; LANES] {
        let simd = self.0.avx512f;
        let words: __m512i = cast(*bytes);
        let upper = simd._mm512_and_si512(words, simd._mm512_set1_epi32(UPPER));
        cast([simd._mm512_slli_epi32::<16>(words), upper])
    }

    #[inline(always)]
    fn narrow(self, wide: [f32; LANES]) -> Self::Bytes {
        let simd = self.0.avx512f;
        let [lower, upper]: [__m512; 2] = cast(wide);
        let lower = simd._mm512_srli_epi32::<16>(round_to_upper(self.0, cast(canonical(self.0, lower))));
        let upper = round_to_upper(self.0, cast(canonical(self.0, upper)));
        cast(simd._mm512_or_si512(lower, simd._mm512_and_si512(upper, simd._mm512_set1_epi32(UPPER))))
    }
}

/// The upper part of a word.
const UPPER: i32 = 0xffff_0000_u32 as i32;

/// Replaces NaNs in one instruction.
#[inline(always)]
fn canonical(v4: V4, wide: __m512) -> __m512 {
    // A digit for each class of number, lowest first: of both kinds of NaN take the first operand, of others the second.
    const BY_CLASS: i32 = 0x1111_1100;
    let simd = v4.avx512f;
    simd._mm512_fixupimm_ps::<0>(simd._mm512_set1_ps(f32::NAN), wide, simd._mm512_set1_epi32(BY_CLASS))
}

/// Rounds to nearest even so that the upper parts of the words are right.
#[inline(always)]
fn round_to_upper(v4: V4, words: __m512i) -> __m512i {
    let simd = v4.avx512f;
    let odd = simd._mm512_and_si512(simd._mm512_srli_epi32::<16>(words), simd._mm512_set1_epi32(1));
    simd._mm512_add_epi32(simd._mm512_add_epi32(words, simd._mm512_set1_epi32(0x7fff)), odd)
}
