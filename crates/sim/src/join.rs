//! What each reduction means, said as plainly as possible: all ranks' elements in, one rank's worth of elements out.

use num_complex::Complex;
use phalanx_core::reduce::Factor;
use phalanx_core::{DType, ReduceOp};

use crate::number::Number;

/// The reduction of all `inputs`, which are equally long, each scaled by its rank's factor where there is one.
pub(crate) fn join(dtype: DType, reduce: ReduceOp, inputs: &[&[u8]], factors: &[Option<Factor>]) -> Vec<u8> {
    let unit = dtype.byte_len();
    let len = inputs.first().map_or(0, |input| input.len() / unit);
    let mut result = Vec::with_capacity(len * unit);
    for at in 0..len {
        let operands = inputs.iter().zip(factors).map(|(input, factor)| {
            let number = Number::decode(dtype, &input[at * unit..][..unit]);
            factor.map_or(number, |factor| scaled(number, factor))
        });
        let total = operands.reduce(|a, b| joined(dtype, reduce, a, b));
        let total = total.unwrap_or(Number::Whole(0));
        divided(dtype, reduce, total, inputs.len()).encode(dtype, &mut result);
    }
    result
}

fn scaled(number: Number, factor: Factor) -> Number {
    match (number, factor) {
        (Number::Real(value), Factor::Real(factor)) => Number::Real(value * factor),
        (Number::Pair(re, im), Factor::Real(factor)) => Number::Pair(re * factor, im * factor),
        (Number::Pair(re, im), Factor::Complex(factor)) => product((re, im), (factor.re, factor.im)),
        (other, _) => other,
    }
}

fn joined(dtype: DType, reduce: ReduceOp, a: Number, b: Number) -> Number {
    match (a, b) {
        (Number::Whole(a), Number::Whole(b)) if dtype == DType::Bool => Number::Whole(flags(reduce, a, b)),
        (Number::Whole(a), Number::Whole(b)) => Number::Whole(whole(reduce, a, b)),
        (Number::Real(a), Number::Real(b)) => Number::Real(real(reduce, a, b)),
        (Number::Pair(ar, ai), Number::Pair(br, bi)) if reduce == ReduceOp::Product => product((ar, ai), (br, bi)),
        (Number::Pair(ar, ai), Number::Pair(br, bi)) => Number::Pair(ar + br, ai + bi),
        (a, _) => a,
    }
}

fn flags(reduce: ReduceOp, a: i128, b: i128) -> i128 {
    match reduce {
        ReduceOp::Product | ReduceOp::Min | ReduceOp::BitAnd => a & b,
        ReduceOp::BitXor => a ^ b,
        _ => a | b,
    }
}

/// Wrapping at 128 bits wraps at every narrower width too.
fn whole(reduce: ReduceOp, a: i128, b: i128) -> i128 {
    match reduce {
        ReduceOp::Product => a.wrapping_mul(b),
        ReduceOp::Min => a.min(b),
        ReduceOp::Max => a.max(b),
        ReduceOp::BitAnd => a & b,
        ReduceOp::BitOr => a | b,
        ReduceOp::BitXor => a ^ b,
        _ => a.wrapping_add(b),
    }
}

fn real(reduce: ReduceOp, a: f64, b: f64) -> f64 {
    let nan = a.is_nan() || b.is_nan();
    match reduce {
        ReduceOp::Product => a * b,
        ReduceOp::Min | ReduceOp::Max if nan => f64::NAN,
        ReduceOp::Min if a.total_cmp(&b).is_lt() => a,
        ReduceOp::Max if a.total_cmp(&b).is_gt() => a,
        ReduceOp::Min | ReduceOp::Max => b,
        _ => a + b,
    }
}

fn product(a: (f64, f64), b: (f64, f64)) -> Number {
    let product = Complex::new(a.0, a.1) * Complex::new(b.0, b.1);
    Number::Pair(product.re, product.im)
}

/// The end of an average: divided in the precision that the rules name, so that it rounds as they say.
fn divided(dtype: DType, reduce: ReduceOp, total: Number, count: usize) -> Number {
    if reduce != ReduceOp::Avg {
        return total;
    }
    let wide = matches!(dtype, DType::F64 | DType::Complex128);
    let share = |total: f64| {
        if wide { total / count as f64 } else { f64::from(total as f32 / count as f32) }
    };
    match total {
        Number::Whole(total) => Number::Whole(total / count as i128),
        Number::Real(total) => Number::Real(share(total)),
        Number::Pair(real, imaginary) => Number::Pair(share(real), share(imaginary)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_wrap_and_their_average_truncates_toward_zero() {
        let inputs: [&[u8]; 2] = [&[127, 0xFD], &[1, 0xFE]];
        assert_eq!(join(DType::I8, ReduceOp::Sum, &inputs, &[None; 2]), [128, 0xFB]);
        assert_eq!(join(DType::I8, ReduceOp::Avg, &inputs, &[None; 2]), [64, 0xFE]);
    }

    #[test]
    fn negative_zero_is_the_lesser_and_a_nan_wins() {
        let bytes = |value: f32| value.to_ne_bytes().to_vec();
        let of = |reduce, a, b| {
            let (a, b) = (bytes(a), bytes(b));
            join(DType::F32, reduce, &[&a, &b], &[None; 2])
        };
        assert_eq!(of(ReduceOp::Min, 0.0, -0.0), bytes(-0.0));
        assert_eq!(of(ReduceOp::Max, -0.0, 0.0), bytes(0.0));
        assert_eq!(of(ReduceOp::Max, f32::NAN, 3.0), bytes(f32::NAN));
    }

    #[test]
    fn factors_scale_before_the_sum() {
        let bytes = 3.0_f64.to_ne_bytes();
        let factors = [Some(Factor::Real(2.0)), Some(Factor::Real(0.5))];
        let sum = join(DType::F64, ReduceOp::PreMulSum, &[&bytes, &bytes], &factors);
        assert_eq!(sum, 7.5_f64.to_ne_bytes());
    }
}
