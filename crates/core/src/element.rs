//! The Rust types that may be elements. Each is plain old data, so slices of it are bytes without a copy.

use bytemuck::{Pod, Zeroable};
pub use float8::{F8E4M3, F8E5M2};
pub use half::{bf16, f16};
pub use num_complex::Complex;

use crate::DType;

/// A Rust type whose slices can be moved between ranks.
///
/// Sealed: the list is the one of [`DType`], and a new one needs a wire number.
pub trait Element: Pod + Default + PartialEq + Send + Sync + std::fmt::Debug + sealed::Sealed {
    /// The wire type of this element.
    const DTYPE: DType;
}

/// One boolean element: a byte that is false when zero.
///
/// Rust's own `bool` may not hold the bytes a peer could send, so the wire type is this byte. Convert with `From`.
#[derive(Clone, Copy, Debug, Default, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bool(u8);

/// An 8-bit float with 4 exponent bits, no infinities and no negative zero (`float8_e4m3fnuz`), as its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct F8E4M3Fnuz(pub u8);

/// An 8-bit float with 5 exponent bits, no infinities and no negative zero (`float8_e5m2fnuz`), as its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct F8E5M2Fnuz(pub u8);

impl From<bool> for Bool {
    fn from(value: bool) -> Bool {
        Bool(u8::from(value))
    }
}

impl From<Bool> for bool {
    fn from(value: Bool) -> bool {
        value.0 != 0
    }
}

impl PartialEq for Bool {
    fn eq(&self, other: &Bool) -> bool {
        bool::from(*self) == bool::from(*other)
    }
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

elements! {
    f64 => F64,
    f32 => F32,
    f16 => F16,
    bf16 => BF16,
    F8E4M3 => F8E4M3FN,
    F8E5M2 => F8E5M2,
    F8E4M3Fnuz => F8E4M3FNUZ,
    F8E5M2Fnuz => F8E5M2FNUZ,
    i8 => I8,
    u8 => U8,
    i16 => I16,
    u16 => U16,
    i32 => I32,
    u32 => U32,
    i64 => I64,
    u64 => U64,
    Bool => Bool,
    Complex<f32> => Complex64,
    Complex<f64> => Complex128,
}

mod sealed {
    /// Keeps [`Element`](super::Element) to the types that have a wire number.
    pub trait Sealed {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_agrees<T: Element>() {
        assert_eq!(size_of::<T>(), T::DTYPE.byte_len(), "{}", T::DTYPE);
    }

    #[test]
    fn sizes_agree_with_the_wire() {
        size_agrees::<f64>();
        size_agrees::<bf16>();
        size_agrees::<F8E4M3>();
        size_agrees::<F8E5M2>();
        size_agrees::<F8E4M3Fnuz>();
        size_agrees::<Bool>();
        size_agrees::<Complex<f32>>();
        size_agrees::<Complex<f64>>();
    }

    #[test]
    fn any_nonzero_byte_is_true() {
        let bytes = [0u8, 1, 2, 255];
        let flags: &[Bool] = bytemuck::cast_slice(&bytes);
        assert_eq!(flags, [false, true, true, true].map(Bool::from));
    }
}
