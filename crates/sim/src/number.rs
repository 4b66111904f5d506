//! Elements as numbers: what the oracle reckons with. Slow and plain, so that it shares no mistake with the kernels.

use half::{bf16, f16};
use phalanx_core::DType;

/// One element, wide enough that no reduction of small worlds rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    /// An integer or a flag.
    Whole(i128),
    /// A floating number.
    Real(f64),
    /// A complex number.
    Pair(f64, f64),
}

impl Number {
    /// The number in the bytes of one element; 8-bit floats are not reduced, so their bits will do.
    pub(crate) fn decode(dtype: DType, bytes: &[u8]) -> Number {
        use Number::{Pair, Real, Whole};
        match dtype {
            DType::F64 => Real(f64::from_ne_bytes(array(bytes))),
            DType::F32 => Real(f32::from_ne_bytes(array(bytes)).into()),
            DType::F16 => Real(f16::from_ne_bytes(array(bytes)).into()),
            DType::BF16 => Real(bf16::from_ne_bytes(array(bytes)).into()),
            DType::I8 => Whole(i8::from_ne_bytes(array(bytes)).into()),
            DType::I16 => Whole(i16::from_ne_bytes(array(bytes)).into()),
            DType::I32 => Whole(i32::from_ne_bytes(array(bytes)).into()),
            DType::I64 => Whole(i64::from_ne_bytes(array(bytes)).into()),
            DType::U16 => Whole(u16::from_ne_bytes(array(bytes)).into()),
            DType::U32 => Whole(u32::from_ne_bytes(array(bytes)).into()),
            DType::U64 => Whole(u64::from_ne_bytes(array(bytes)).into()),
            DType::Bool => Whole((bytes[0] != 0).into()),
            DType::Complex64 => {
                Pair(f32::from_ne_bytes(array(bytes)).into(), f32::from_ne_bytes(array(&bytes[4..])).into())
            }
            DType::Complex128 => Pair(f64::from_ne_bytes(array(bytes)), f64::from_ne_bytes(array(&bytes[8..]))),
            _ => Whole(bytes[0].into()),
        }
    }

    /// Appends the element's bytes: integers wrap, floats round once.
    pub(crate) fn encode(self, dtype: DType, into: &mut Vec<u8>) {
        match self {
            Number::Whole(value) => into.extend_from_slice(&value.to_le_bytes()[..dtype.byte_len()]),
            Number::Real(value) => encode_real(dtype, value, into),
            Number::Pair(real, imaginary) => {
                let part = if dtype == DType::Complex64 { DType::F32 } else { DType::F64 };
                encode_real(part, real, into);
                encode_real(part, imaginary, into);
            }
        }
    }
}

/// Every NaN is written as the canonical one, as the reductions promise.
fn encode_real(dtype: DType, value: f64, into: &mut Vec<u8>) {
    let nan = value.is_nan();
    match dtype {
        DType::F32 => into.extend((if nan { f32::NAN } else { value as f32 }).to_ne_bytes()),
        DType::F16 => into.extend((if nan { f16::NAN } else { f16::from_f64(value) }).to_ne_bytes()),
        DType::BF16 => into.extend((if nan { bf16::NAN } else { bf16::from_f64(value) }).to_ne_bytes()),
        _ => into.extend((if nan { f64::NAN } else { value }).to_ne_bytes()),
    }
}

/// The first `N` bytes, which the caller knows to be there.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|index| bytes[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_round_trip_in_every_type() {
        for dtype in DType::ALL {
            for value in [0_i8, 1] {
                let number = match dtype {
                    DType::F64 | DType::F32 | DType::F16 | DType::BF16 => Number::Real(value.into()),
                    DType::Complex64 | DType::Complex128 => Number::Pair(value.into(), -2.0),
                    _ => Number::Whole(value.into()),
                };
                let mut bytes = vec![];
                number.encode(dtype, &mut bytes);
                assert_eq!(bytes.len(), dtype.byte_len());
                assert_eq!(Number::decode(dtype, &bytes), number, "{dtype}");
            }
        }
    }
}
