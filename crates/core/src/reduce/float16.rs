//! Conversions between 16-bit floats and `f32` without branches, so that a loop over them vectorises.

/// The value of a bfloat16.
#[inline(always)]
pub(super) fn widen_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bfloat16, ties to even. NaNs must be canonical: a full payload would overflow into the sign.
#[inline(always)]
pub(super) fn narrow_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let odd = (bits >> 16) & 1;
    ((bits + 0x7fff + odd) >> 16) as u16
}

/// The value of a binary16.
#[inline(always)]
pub(super) fn widen_f16(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let sign = u32::from(bits & 0x8000) << 16;
    // The implicit one that a subnormal lacks is added, then taken away by a subtraction that normalises.
    let subnormal = f32::from_bits(magnitude + LEAST_NORMAL_F16) - f32::from_bits(LEAST_NORMAL_F16);
    let rebias = if magnitude >= 0x7c00 << 13 { 2 * REBIAS } else { REBIAS };
    let value = if magnitude < 0x0400 << 13 { subnormal.to_bits() } else { magnitude + rebias };
    f32::from_bits(value | sign)
}

/// The nearest binary16, ties to even. NaNs must be canonical.
#[inline(always)]
pub(super) fn narrow_f16(value: f32) -> u16 {
    let magnitude = value.to_bits() & 0x7fff_ffff;
    let sign = (value.to_bits() >> 16) & 0x8000;
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_sub(REBIAS).wrapping_add(0xfff + odd) >> 13;
    // Adding a number whose last place is the least subnormal lets the adder do the rounding.
    let subnormal = (f32::from_bits(magnitude) + f32::from_bits(SUBNORMAL_ROUNDER)).to_bits() - SUBNORMAL_ROUNDER;
    let finite = if magnitude < LEAST_NORMAL_F16 { subnormal } else { normal };
    let special = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    let rounded = if magnitude >= TWO_TO_16 { special } else { finite };
    (rounded | sign) as u16
}

/// The difference of the exponent biases of binary32 and binary16, in place.
const REBIAS: u32 = (127 - 15) << 23;
/// 2^-14, the least normal binary16, as binary32 bits.
const LEAST_NORMAL_F16: u32 = (127 - 14) << 23;
/// 2^-1, whose last place as binary32 is 2^-24, the least subnormal binary16.
const SUBNORMAL_ROUNDER: u32 = (127 - 1) << 23;
/// 2^16, past every finite binary16, as binary32 bits.
const TWO_TO_16: u32 = (127 + 16) << 23;

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn every_16_bit_float_widens_as_half_says_and_narrows_back() {
        for bits in 0..=u16::MAX {
            let half = f16::from_bits(bits);
            let brain = bf16::from_bits(bits);
            if !half.is_nan() {
                assert_eq!(widen_f16(bits).to_bits(), half.to_f32().to_bits(), "{bits:#x}");
                assert_eq!(narrow_f16(half.to_f32()), bits, "{bits:#x}");
            }
            if !brain.is_nan() {
                assert_eq!(widen_bf16(bits).to_bits(), brain.to_f32().to_bits(), "{bits:#x}");
                assert_eq!(narrow_bf16(brain.to_f32()), bits, "{bits:#x}");
            }
            assert_eq!(widen_f16(bits).is_nan(), half.is_nan(), "{bits:#x}");
        }
    }

    #[test]
    fn narrowing_rounds_as_half_does() {
        // Every exponent and sign, with mantissas around each rounding point of either type.
        for head in 0..=u16::MAX {
            for tail in [0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xf000, 0xffff] {
                let value = f32::from_bits(u32::from(head) << 16 | tail);
                if !value.is_nan() {
                    assert_eq!(narrow_f16(value), f16::from_f32(value).to_bits(), "{value:e}");
                    assert_eq!(narrow_bf16(value), bf16::from_f32(value).to_bits(), "{value:e}");
                }
            }
        }
        assert_eq!(narrow_f16(f32::NAN), 0x7e00);
        assert_eq!(narrow_bf16(f32::NAN), 0x7fc0);
    }
}
