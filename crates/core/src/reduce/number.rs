//! Arithmetic on one accumulator, with the rules of `ReduceOp`. NaNs are made canonical later, where a lane is stored.

use bytemuck::Pod;
use num_complex::Complex;

/// What accumulates.
pub(super) trait Number: Pod {
    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;
    /// The product; integers wrap.
    fn times(self, other: Self) -> Self;
}

/// Accumulators wide enough that a total of any number of ranks can be divided by their count.
pub(super) trait Share: Number {
    /// This total divided by `count`; integers truncate toward zero.
    fn share(self, count: usize) -> Self;
}

/// Numbers with a least and a greatest.
pub(super) trait Ordered: Number {
    /// The lesser; of floats, NaN if either is, and -0.0 below +0.0.
    fn least(self, other: Self) -> Self;
    /// The greater; of floats, NaN if either is, and +0.0 above -0.0.
    fn greatest(self, other: Self) -> Self;
}

/// The rule for totals that need no division: the total itself.
#[inline(always)]
pub(super) fn keep<W>(total: W, _count: usize) -> W {
    total
}

/// The complex product.
#[inline(always)]
pub(super) fn complex_product<F: Number + std::ops::Neg<Output = F>>(a: Complex<F>, b: Complex<F>) -> Complex<F> {
    Complex { re: a.re.times(b.re).plus(-a.im.times(b.im)), im: a.re.times(b.im).plus(a.im.times(b.re)) }
}

macro_rules! floats {
    ($($float:ty),*) => {$(
        impl Number for $float {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
        }

        // Equal operands are either the same bits or two zeros: merging their bits settles which zero.
        impl Ordered for $float {
            #[inline(always)]
            fn least(self, other: Self) -> Self {
                let settled = Self::from_bits(self.to_bits() | other.to_bits());
                let lesser = if self < other { self } else { other };
                let ordered = if self == other { settled } else { lesser };
                if self.is_nan() | other.is_nan() { Self::NAN } else { ordered }
            }

            #[inline(always)]
            fn greatest(self, other: Self) -> Self {
                let settled = Self::from_bits(self.to_bits() & other.to_bits());
                let greater = if self > other { self } else { other };
                let ordered = if self == other { settled } else { greater };
                if self.is_nan() | other.is_nan() { Self::NAN } else { ordered }
            }
        }
    )*};
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Number for $integer {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }

        impl Ordered for $integer {
            #[inline(always)]
            fn least(self, other: Self) -> Self {
                self.min(other)
            }

            #[inline(always)]
            fn greatest(self, other: Self) -> Self {
                self.max(other)
            }
        }
    )*};
}

macro_rules! shares {
    ($($wide:ty),*) => {$(
        impl Share for $wide {
            #[inline(always)]
            fn share(self, count: usize) -> Self {
                self / count as $wide
            }
        }
    )*};
}

floats!(f32, f64);
integers!(i8, u8, i16, u16, i32, u32, i64, u64, i128);
shares!(f32, f64, i64, i128);
