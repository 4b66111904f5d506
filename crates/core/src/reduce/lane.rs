//! Lanes: elements as they lie in bytes, and the accumulator each is widened to.
//!
//! Elements are read and written through `bytemuck` as unaligned: on today's machines that costs nothing when the
//! address happens to be aligned, and one path is one set of bits.

use bytemuck::Pod;
use half::{bf16, f16};
use num_complex::Complex;

use super::float16;
use super::group::{Group, NoGroup};
use crate::Bool;

/// The groups of floats.
#[cfg(target_arch = "x86_64")]
mod groups {
    use crate::reduce::group::Either;
    use crate::reduce::{group_v3, group_v4};

    pub(super) type Singles = Either<group_v4::Singles, group_v3::Singles>;
    pub(super) type Halves = Either<group_v4::Halves, group_v3::Halves>;
    pub(super) type Brains = Either<group_v4::Brains, group_v3::Brains>;
}

#[cfg(not(target_arch = "x86_64"))]
mod groups {
    use crate::reduce::group::NoGroup;

    pub(super) type Singles = NoGroup;
    pub(super) type Halves = NoGroup;
    pub(super) type Brains = NoGroup;
}

/// An element that accumulates as a `W`.
pub(super) trait Lane<W>: Pod {
    /// What converts many of them at once; `NoGroup` where the compiler does that well by itself.
    type Group: Group<W>;

    /// The element as an accumulator, exactly.
    fn widen(self) -> W;

    /// The accumulator as an element: rounded once, NaNs canonical.
    fn narrow(wide: W) -> Self;
}

macro_rules! floats {
    ($($float:ty: $group:ty),*) => {$(
        impl Lane<$float> for $float {
            type Group = $group;

            #[inline(always)]
            fn widen(self) -> $float {
                self
            }

            #[inline(always)]
            fn narrow(wide: $float) -> $float {
                if wide.is_nan() { <$float>::NAN } else { wide }
            }
        }

        impl Lane<Complex<$float>> for Complex<$float> {
            type Group = NoGroup;

            #[inline(always)]
            fn widen(self) -> Self {
                self
            }

            #[inline(always)]
            fn narrow(wide: Self) -> Self {
                Complex { re: <$float>::narrow(wide.re), im: <$float>::narrow(wide.im) }
            }
        }
    )*};
}

macro_rules! integers {
    ($($integer:ty => $wide:ty),* $(,)?) => {$(
        impl Lane<$wide> for $integer {
            type Group = NoGroup;

            #[inline(always)]
            fn widen(self) -> $wide {
                self as $wide
            }

            #[inline(always)]
            fn narrow(wide: $wide) -> $integer {
                wide as $integer
            }
        }
    )*};
}

floats!(f32: groups::Singles, f64: NoGroup);
integers!(i8 => i8, u8 => u8, i16 => i16, u16 => u16, i32 => i32, u32 => u32, i64 => i64, u64 => u64);
integers!(i8 => i64, u8 => i64, i16 => i64, u16 => i64, i32 => i64, u32 => i64, i64 => i128, u64 => i128);

impl Lane<u8> for Bool {
    type Group = NoGroup;

    #[inline(always)]
    fn widen(self) -> u8 {
        u8::from(bool::from(self))
    }

    #[inline(always)]
    fn narrow(wide: u8) -> Bool {
        Bool::from(wide != 0)
    }
}

impl Lane<f32> for f16 {
    type Group = groups::Halves;

    #[inline(always)]
    fn widen(self) -> f32 {
        float16::widen_f16(self.to_bits())
    }

    #[inline(always)]
    fn narrow(wide: f32) -> f16 {
        f16::from_bits(float16::narrow_f16(f32::narrow(wide)))
    }
}

impl Lane<f32> for bf16 {
    type Group = groups::Brains;

    #[inline(always)]
    fn widen(self) -> f32 {
        float16::widen_bf16(self.to_bits())
    }

    #[inline(always)]
    fn narrow(wide: f32) -> bf16 {
        bf16::from_bits(float16::narrow_bf16(f32::narrow(wide)))
    }
}

/// The elements of `bytes`, wherever they start.
#[inline(always)]
pub(super) fn elements<L: Pod>(bytes: &[u8]) -> impl ExactSizeIterator<Item = L> {
    bytes.chunks_exact(size_of::<L>()).map(load)
}

#[inline(always)]
pub(super) fn load<L: Pod>(place: &[u8]) -> L {
    bytemuck::pod_read_unaligned(place)
}

#[inline(always)]
pub(super) fn store<L: Pod>(place: &mut [u8], element: L) {
    place.copy_from_slice(bytemuck::bytes_of(&element));
}
