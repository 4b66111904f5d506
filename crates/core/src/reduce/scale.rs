//! One operand: the division that ends a folded average, and the scaling that precedes a `PreMulSum`.

use half::{bf16, f16};
use num_complex::Complex;
use pulp::Arch;

use super::fault::{check_length, check_whole};
use super::isa::{Isa, run_on};
use super::lane::{Lane, elements};
use super::loops;
use super::number::{Number, Share, complex_product};
use super::{ReduceError, ReduceOp};
use crate::{Class, DType};

/// What every element is multiplied by before a `PreMulSum`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Factor {
    /// A real number. It is rounded to what the elements accumulate in: `f64`, or `f32` for anything narrower.
    Real(f64),
    /// A complex number, for complex elements only. It is rounded like a real one.
    Complex(Complex<f64>),
}

impl Factor {
    /// Its bits, by which it is told apart also where it is no number.
    pub(crate) fn bits(self) -> [Option<u64>; 2] {
        match self {
            Factor::Real(factor) => [Some(factor.to_bits()), None],
            Factor::Complex(factor) => [Some(factor.re.to_bits()), Some(factor.im.to_bits())],
        }
    }
}

impl From<f32> for Factor {
    fn from(factor: f32) -> Factor {
        Factor::Real(factor.into())
    }
}

impl From<f64> for Factor {
    fn from(factor: f64) -> Factor {
        Factor::Real(factor)
    }
}

impl From<Complex<f64>> for Factor {
    fn from(factor: Complex<f64>) -> Factor {
        Factor::Complex(factor)
    }
}

impl Factor {
    /// The factor that is one element of `dtype`, as a one-element tensor holds it.
    ///
    /// # Errors
    ///
    /// [`ReduceError`] where `dtype` has no [`PreMulSum`](ReduceOp::PreMulSum), or `bytes` are not one element of it.
    pub fn from_element(dtype: DType, bytes: &[u8]) -> Result<Factor, ReduceError> {
        ReduceOp::PreMulSum.supports(dtype)?;
        check_length(dtype.byte_len(), bytes)?;
        let real = |value: Option<f64>| value.map(Factor::Real);
        let factor = match dtype {
            DType::F64 => real(elements(bytes).next()),
            DType::F32 => real(elements::<f32>(bytes).next().map(f64::from)),
            DType::F16 => real(elements::<f16>(bytes).next().map(f64::from)),
            DType::BF16 => real(elements::<bf16>(bytes).next().map(f64::from)),
            DType::Complex64 => elements::<Complex<f32>>(bytes).next().map(|c| Factor::Complex(widen(c))),
            DType::Complex128 => elements(bytes).next().map(Factor::Complex),
            _ => None,
        };
        factor.ok_or(ReduceError::Empty)
    }
}

/// Divides `data`, a folded sum of `count` operands, so that it is their average.
///
/// For floats and complex numbers; the average of integers comes out of [`combine`](super::combine) whole.
///
/// # Errors
///
/// [`ReduceError`] where averages of `dtype` are [not folded](ReduceOp::supports_fold), `data` is no whole elements, or `count` is 0. Nothing is
/// changed then.
pub fn finish_avg(dtype: DType, data: &mut [u8], count: usize) -> Result<(), ReduceError> {
    ReduceOp::Avg.supports_fold(dtype)?;
    check_whole(dtype, data)?;
    if count == 0 {
        return Err(ReduceError::Empty);
    }
    match dtype {
        DType::F64 | DType::Complex128 => change::<f64, f64>(data, |total| total.share(count)),
        DType::F32 | DType::Complex64 => change::<f32, f32>(data, |total| total.share(count)),
        DType::F16 => change::<f16, f32>(data, |total| total.share(count)),
        DType::BF16 => change::<bf16, f32>(data, |total| total.share(count)),
        _ => {}
    }
    Ok(())
}

/// Multiplies every element of `data` by `factor`, rounding the products to `dtype`: what each rank does to its own
/// operand before a `PreMulSum`.
///
/// # Errors
///
/// [`ReduceError`] where `dtype` has no [`PreMulSum`](ReduceOp::PreMulSum) or is real and the factor complex, or `data` is no whole elements.
/// Nothing is changed then.
pub fn scale(dtype: DType, data: &mut [u8], factor: &Factor) -> Result<(), ReduceError> {
    ReduceOp::PreMulSum.supports(dtype)?;
    check_whole(dtype, data)?;
    match *factor {
        Factor::Real(factor) => scale_real(dtype, data, factor),
        Factor::Complex(factor) if dtype.class() == Class::Complex => scale_complex(dtype, data, factor),
        Factor::Complex(_) => Err(ReduceOp::PreMulSum.refused(dtype, "a complex factor needs complex elements"))?,
    }
    Ok(())
}

fn scale_real(dtype: DType, data: &mut [u8], factor: f64) {
    let short = factor as f32;
    match dtype {
        DType::F64 | DType::Complex128 => change::<f64, f64>(data, |value| value.times(factor)),
        DType::F32 | DType::Complex64 => change::<f32, f32>(data, |value| value.times(short)),
        DType::F16 => change::<f16, f32>(data, |value| value.times(short)),
        DType::BF16 => change::<bf16, f32>(data, |value| value.times(short)),
        _ => {}
    }
}

fn scale_complex(dtype: DType, data: &mut [u8], factor: Complex<f64>) {
    let short = Complex { re: factor.re as f32, im: factor.im as f32 };
    match dtype {
        DType::Complex128 => change::<Complex<f64>, _>(data, |value| complex_product(value, factor)),
        DType::Complex64 => change::<Complex<f32>, _>(data, |value| complex_product(value, short)),
        _ => {}
    }
}

fn change<L: Lane<W>, W: Copy>(data: &mut [u8], to: impl Fn(W) -> W) {
    run_on(
        Arch::new(),
        #[inline(always)]
        |isa: Isa| loops::map_all::<L, W>(isa, data, to),
    );
}

fn widen(value: Complex<f32>) -> Complex<f64> {
    Complex { re: value.re.into(), im: value.im.into() }
}
