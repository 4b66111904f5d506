//! The oracle: each reduction written as plainly as its definition, one element at a time. The kernels must agree to the bit.

use half::{bf16, f16};
use num_complex::Complex;

use super::ReduceOp;
use crate::{DType, Element};

/// What `reduce` makes of `operands`, in order. The pair must be supported.
pub(super) fn reference(reduce: ReduceOp, dtype: DType, operands: &[&[u8]]) -> Vec<u8> {
    match dtype {
        DType::F64 => each(operands, |values| real64(reduce, values)),
        DType::F32 => each(operands, |values| real32(reduce, values)),
        DType::F16 => each(operands, |values: &[f16]| f16::from_f32(real32(reduce, &convert(values, f16::to_f32)))),
        DType::BF16 => each(operands, |values: &[bf16]| bf16::from_f32(real32(reduce, &convert(values, bf16::to_f32)))),
        DType::I8 => each(operands, |values| integer(reduce, &convert(values, i8::into)) as i8),
        DType::U8 => each(operands, |values| integer(reduce, &convert(values, u8::into)) as u8),
        DType::I16 => each(operands, |values| integer(reduce, &convert(values, i16::into)) as i16),
        DType::U16 => each(operands, |values| integer(reduce, &convert(values, u16::into)) as u16),
        DType::I32 => each(operands, |values| integer(reduce, &convert(values, i32::into)) as i32),
        DType::U32 => each(operands, |values| integer(reduce, &convert(values, u32::into)) as u32),
        DType::I64 => each(operands, |values| integer(reduce, &convert(values, i64::into)) as i64),
        DType::U64 => each(operands, |values| integer(reduce, &convert(values, u64::into)) as u64),
        DType::Bool => each(operands, |values| flag(reduce, &convert(values, |byte: u8| byte != 0))),
        DType::Complex64 => each(operands, |values| complex64(reduce, values)),
        DType::Complex128 => each(operands, |values| complex128(reduce, values)),
        _ => unreachable!("{dtype} is not reduced"),
    }
}

fn each<E: Element>(operands: &[&[u8]], rule: impl Fn(&[E]) -> E) -> Vec<u8> {
    let operands: Vec<Vec<E>> = operands.iter().map(|bytes| read(bytes)).collect();
    let column = |index: usize| -> Vec<E> { operands.iter().map(|operand| operand[index]).collect() };
    let reduced: Vec<E> = (0..operands[0].len()).map(|index| rule(&column(index))).collect();
    bytemuck::cast_slice(&reduced).to_vec()
}

fn read<E: Element>(bytes: &[u8]) -> Vec<E> {
    bytes.chunks(size_of::<E>()).map(bytemuck::pod_read_unaligned).collect()
}

fn convert<A: Copy, B>(values: &[A], to: impl Fn(A) -> B) -> Vec<B> {
    values.iter().map(|value| to(*value)).collect()
}

macro_rules! real {
    ($name:ident, $complex:ident, $float:ty, $nan:literal) => {
        fn $name(reduce: ReduceOp, values: &[$float]) -> $float {
            let join = |a: $float, b: $float| match reduce {
                ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum => a + b,
                ReduceOp::Product => a * b,
                _ if a.is_nan() || b.is_nan() => <$float>::NAN,
                ReduceOp::Min if a == b => {
                    if a.is_sign_negative() {
                        a
                    } else {
                        b
                    }
                }
                ReduceOp::Max if a == b => {
                    if a.is_sign_negative() {
                        b
                    } else {
                        a
                    }
                }
                ReduceOp::Min => a.min(b),
                ReduceOp::Max => a.max(b),
                _ => unreachable!(),
            };
            let total = values.iter().copied().reduce(join).unwrap();
            let result = if reduce == ReduceOp::Avg { total / values.len() as $float } else { total };
            if result.is_nan() { <$float>::from_bits($nan) } else { result }
        }

        fn $complex(reduce: ReduceOp, values: &[Complex<$float>]) -> Complex<$float> {
            let product = || values.iter().copied().reduce(|a, b| a * b).unwrap();
            let part = |of: fn(&Complex<$float>) -> $float| -> $float {
                $name(reduce, &values.iter().map(of).collect::<Vec<_>>())
            };
            let result = match reduce {
                ReduceOp::Product => product(),
                _ => Complex::new(part(|value| value.re), part(|value| value.im)),
            };
            let canonical = |x: $float| if x.is_nan() { <$float>::from_bits($nan) } else { x };
            Complex::new(canonical(result.re), canonical(result.im))
        }
    };
}

real!(real32, complex64, f32, 0x7fc0_0000);
real!(real64, complex128, f64, 0x7ff8_0000_0000_0000);

/// Exact, or modulo 2^128, of which any narrower width keeps the low bits: the caller's `as` wraps.
fn integer(reduce: ReduceOp, values: &[i128]) -> i128 {
    let join = |a: i128, b: i128| match reduce {
        ReduceOp::Sum | ReduceOp::Avg => a.wrapping_add(b),
        ReduceOp::Product => a.wrapping_mul(b),
        ReduceOp::Min => a.min(b),
        ReduceOp::Max => a.max(b),
        ReduceOp::BitAnd => a & b,
        ReduceOp::BitOr => a | b,
        ReduceOp::BitXor => a ^ b,
        ReduceOp::PreMulSum => unreachable!(),
    };
    let total = values.iter().copied().reduce(join).unwrap();
    if reduce == ReduceOp::Avg { total / values.len() as i128 } else { total }
}

fn flag(reduce: ReduceOp, values: &[bool]) -> u8 {
    let join = |a: bool, b: bool| match reduce {
        ReduceOp::Sum | ReduceOp::Max | ReduceOp::BitOr => a || b,
        ReduceOp::Product | ReduceOp::Min | ReduceOp::BitAnd => a && b,
        ReduceOp::BitXor => a != b,
        _ => unreachable!(),
    };
    values.iter().copied().reduce(join).unwrap().into()
}
