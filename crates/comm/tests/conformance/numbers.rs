//! Elements of every type as numbers, and the reductions as their definitions say. The numbers are such that what up to
//! nine ranks have is joined without rounding, so that there is one right answer, or that it wraps as it should.

use std::ops::Range;

use half::{bf16, f16};
use phalanx_core::{Class, DType, ReduceOp};

/// One element as a number of its class.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Real(f64),
    Whole(i128),
    Flag(bool),
    Complex(f64, f64),
}

/// Some number of this type.
pub(crate) fn pick(dtype: DType, hash: u64) -> Number {
    let bits = dtype.byte_len() as u32 * 8;
    match dtype.class() {
        Class::Integer if dtype.name().starts_with('u') => {
            Number::Whole([0, 1, 3, (1_i128 << bits) - 1, 1_i128 << (bits - 1)][hash as usize % 5])
        }
        Class::Integer => {
            Number::Whole([-7, 1, 3, (1_i128 << (bits - 1)) - 1, -(1_i128 << (bits - 1))][hash as usize % 5])
        }
        Class::Bool => Number::Flag(hash & 1 == 0),
        // No product of these has a part that is zero, whose sign would depend on the order.
        Class::Complex if hash & 1 == 0 => Number::Complex(2.0, 1.0),
        Class::Complex => Number::Complex(-2.0, -1.0),
        _ => Number::Real([1.0, -1.0, 2.0, 0.5, -2.0, 0.0][hash as usize % 6]),
    }
}

/// What a rank scales its elements by, where the reduction does so.
pub(crate) fn factor(reduce: ReduceOp, rank: usize) -> Option<f64> {
    (reduce == ReduceOp::PreMulSum).then(|| [2.0, -1.0, 0.5][rank % 3])
}

/// The reduction of these places of all ranks' elements.
pub(crate) fn joined(reduce: ReduceOp, inputs: &[Vec<Number>], places: Range<usize>) -> Vec<Number> {
    let size = inputs.len();
    let of = |rank: usize, at: usize| match (inputs[rank][at], factor(reduce, rank)) {
        (Number::Real(value), Some(factor)) => Number::Real(value * factor),
        (Number::Complex(re, im), Some(factor)) => Number::Complex(re * factor, im * factor),
        (value, _) => value,
    };
    let join = |at: usize| {
        let total = (0..size).map(|rank| of(rank, at)).reduce(|a, b| pair(reduce, a, b)).expect("a rank");
        match (reduce, total) {
            (ReduceOp::Avg, Number::Real(sum)) => Number::Real(sum / size as f64),
            (ReduceOp::Avg, Number::Complex(re, im)) => Number::Complex(re / size as f64, im / size as f64),
            (ReduceOp::Avg, Number::Whole(sum)) => Number::Whole(sum / size as i128),
            (_, total) => total,
        }
    };
    places.map(join).collect()
}

/// The numbers as elements of this type.
pub(crate) fn encode(dtype: DType, numbers: &[Number]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(numbers.len() * dtype.byte_len());
    for number in numbers {
        match (*number, dtype) {
            (Number::Real(value), DType::F64) => bytes.extend(value.to_le_bytes()),
            (Number::Real(value), DType::F32) => bytes.extend((value as f32).to_le_bytes()),
            (Number::Real(value), DType::F16) => bytes.extend(f16::from_f32(value as f32).to_le_bytes()),
            (Number::Real(value), _) => bytes.extend(bf16::from_f32(value as f32).to_le_bytes()),
            (Number::Whole(value), _) => bytes.extend(&value.to_le_bytes()[..dtype.byte_len()]),
            (Number::Flag(value), _) => bytes.push(u8::from(value)),
            (Number::Complex(re, im), DType::Complex64) => {
                bytes.extend([re as f32, im as f32].into_iter().flat_map(f32::to_le_bytes));
            }
            (Number::Complex(re, im), _) => bytes.extend([re, im].into_iter().flat_map(f64::to_le_bytes)),
        }
    }
    bytes
}

fn pair(reduce: ReduceOp, a: Number, b: Number) -> Number {
    use ReduceOp::*;
    match (a, b, reduce) {
        (Number::Real(a), Number::Real(b), Sum | Avg | PreMulSum) => Number::Real(a + b),
        (Number::Real(a), Number::Real(b), Product) => Number::Real(a * b),
        (Number::Real(a), Number::Real(b), Min) => Number::Real(a.min(b)),
        (Number::Real(a), Number::Real(b), Max) => Number::Real(a.max(b)),
        (Number::Whole(a), Number::Whole(b), Sum | Avg) => Number::Whole(a + b),
        (Number::Whole(a), Number::Whole(b), Product) => Number::Whole(a.wrapping_mul(b)),
        (Number::Whole(a), Number::Whole(b), Min) => Number::Whole(a.min(b)),
        (Number::Whole(a), Number::Whole(b), Max) => Number::Whole(a.max(b)),
        (Number::Whole(a), Number::Whole(b), BitAnd) => Number::Whole(a & b),
        (Number::Whole(a), Number::Whole(b), BitOr) => Number::Whole(a | b),
        (Number::Whole(a), Number::Whole(b), BitXor) => Number::Whole(a ^ b),
        (Number::Flag(a), Number::Flag(b), Sum | Max | BitOr) => Number::Flag(a | b),
        (Number::Flag(a), Number::Flag(b), Product | Min | BitAnd) => Number::Flag(a & b),
        (Number::Flag(a), Number::Flag(b), BitXor) => Number::Flag(a ^ b),
        (Number::Complex(a, b), Number::Complex(c, d), Sum | Avg | PreMulSum) => Number::Complex(a + c, b + d),
        (Number::Complex(a, b), Number::Complex(c, d), Product) => Number::Complex(a * c - b * d, a * d + b * c),
        _ => unreachable!("{reduce} of {a:?} and {b:?}"),
    }
}
