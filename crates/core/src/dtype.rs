//! Element types by name: what travels in headers and chooses kernels. The Rust types themselves are in `element`.

use std::fmt;
use std::str::FromStr;

/// The type of one element, as it is written in frame headers and in every error message.
///
/// The numbers are part of the wire format and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum DType {
    /// IEEE 754 binary64.
    F64 = 1,
    /// IEEE 754 binary32.
    F32 = 2,
    /// IEEE 754 binary16.
    F16 = 3,
    /// The upper half of a binary32.
    BF16 = 4,
    /// OCP 8-bit float, 4 exponent bits, finite only.
    F8E4M3FN = 5,
    /// OCP 8-bit float, 5 exponent bits.
    F8E5M2 = 6,
    /// 8-bit float, 4 exponent bits, finite only, no negative zero.
    F8E4M3FNUZ = 7,
    /// 8-bit float, 5 exponent bits, finite only, no negative zero.
    F8E5M2FNUZ = 8,
    /// Signed 8-bit integer.
    I8 = 9,
    /// Unsigned 8-bit integer, and plain bytes.
    U8 = 10,
    /// Signed 16-bit integer.
    I16 = 11,
    /// Unsigned 16-bit integer.
    U16 = 12,
    /// Signed 32-bit integer.
    I32 = 13,
    /// Unsigned 32-bit integer.
    U32 = 14,
    /// Signed 64-bit integer.
    I64 = 15,
    /// Unsigned 64-bit integer.
    U64 = 16,
    /// One byte, false when zero.
    Bool = 17,
    /// Two `f32`: real, imaginary.
    Complex64 = 18,
    /// Two `f64`: real, imaginary.
    Complex128 = 19,
}

/// What kind of number a [`DType`] is: the reduction rules are written in these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// `f64`, `f32`, `f16`, `bf16`.
    Float,
    /// The four 8-bit floats, which are moved but not reduced.
    Float8,
    /// Integers of either sign.
    Integer,
    /// `bool`.
    Bool,
    /// Complex numbers.
    Complex,
}

impl DType {
    /// Every element type, in wire order.
    pub const ALL: [DType; 19] = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::F8E4M3FN,
        DType::F8E5M2,
        DType::F8E4M3FNUZ,
        DType::F8E5M2FNUZ,
        DType::I8,
        DType::U8,
        DType::I16,
        DType::U16,
        DType::I32,
        DType::U32,
        DType::I64,
        DType::U64,
        DType::Bool,
        DType::Complex64,
        DType::Complex128,
    ];

    /// Bytes of one element.
    pub const fn byte_len(self) -> usize {
        match self {
            DType::F8E4M3FN | DType::F8E5M2 | DType::F8E4M3FNUZ | DType::F8E5M2FNUZ => 1,
            DType::I8 | DType::U8 | DType::Bool => 1,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F64 | DType::I64 | DType::U64 | DType::Complex64 => 8,
            DType::Complex128 => 16,
        }
    }

    /// How many whole elements are in so many bytes. By a shift, as the length of each is a power of two: a division takes many times as long,
    /// and a call would have several.
    pub(crate) const fn elements(self, byte_len: usize) -> usize {
        byte_len >> self.byte_len().trailing_zeros()
    }

    /// Whether so many bytes are whole elements: by a mask, for the same reason.
    pub(crate) const fn is_whole(self, byte_len: usize) -> bool {
        byte_len & (self.byte_len() - 1) == 0
    }

    /// What kind of number this is.
    pub const fn class(self) -> Class {
        match self {
            DType::F64 | DType::F32 | DType::F16 | DType::BF16 => Class::Float,
            DType::F8E4M3FN | DType::F8E5M2 | DType::F8E4M3FNUZ | DType::F8E5M2FNUZ => Class::Float8,
            DType::Bool => Class::Bool,
            DType::Complex64 | DType::Complex128 => Class::Complex,
            _ => Class::Integer,
        }
    }

    /// The name, as printed and parsed: `f32`, `bf16`, `f8e4m3fn`, `complex64`, ...
    pub const fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F8E4M3FN => "f8e4m3fn",
            DType::F8E5M2 => "f8e5m2",
            DType::F8E4M3FNUZ => "f8e4m3fnuz",
            DType::F8E5M2FNUZ => "f8e5m2fnuz",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I16 => "i16",
            DType::U16 => "u16",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::I64 => "i64",
            DType::U64 => "u64",
            DType::Bool => "bool",
            DType::Complex64 => "complex64",
            DType::Complex128 => "complex128",
        }
    }

    /// The type with this wire number, if there is one.
    pub fn from_wire(number: u8) -> Option<DType> {
        DType::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = String;

    fn from_str(text: &str) -> Result<DType, String> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == text).ok_or_else(|| {
            let names: Vec<_> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
            format!("unknown dtype '{text}'; one of {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_numbers_and_names_round_trip() {
        for (index, dtype) in DType::ALL.into_iter().enumerate() {
            assert_eq!(dtype as usize, index + 1);
            assert_eq!(DType::from_wire(dtype as u8), Some(dtype));
            assert_eq!(dtype.name().parse(), Ok(dtype));
        }
        assert_eq!(DType::from_wire(0), None);
        assert_eq!(DType::from_wire(20), None);
        assert!("f128".parse::<DType>().unwrap_err().contains("'f128'"));
    }
}
