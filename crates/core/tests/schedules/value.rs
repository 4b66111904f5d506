//! One element as a plain number: the oracle's arithmetic, and the bytes of each type. No kernel of the library is used.

use half::{bf16, f16};
use phalanx_core::{Class, DType, ReduceOp};

/// An element, wide enough that joining small numbers is exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Real(f64),
    Complex(f64, f64),
    /// Its low bits count: a total that wraps is the total of what was wrapped.
    Whole(i128),
    Flag(bool),
}

use Value::{Complex, Flag, Real, Whole};

impl Value {
    /// All ranks' elements joined in rank order.
    pub(crate) fn join(reduce: ReduceOp, all: &[Value]) -> Value {
        let total = all[1..].iter().fold(all[0], |total, &next| Value::pair(reduce, total, next));
        if reduce == ReduceOp::Avg { total.share(all.len()) } else { total }
    }

    fn pair(reduce: ReduceOp, a: Value, b: Value) -> Value {
        match (a, b) {
            (Real(a), Real(b)) => Real(real(reduce, a, b)),
            (Whole(a), Whole(b)) => Whole(whole(reduce, a, b)),
            (Flag(a), Flag(b)) => Flag(flag(reduce, a, b)),
            (Complex(a, b), Complex(c, d)) if reduce == ReduceOp::Product => Complex(a * c - b * d, a * d + b * c),
            (Complex(a, b), Complex(c, d)) => Complex(a + c, b + d),
            _ => panic!("{a:?} and {b:?}"),
        }
    }

    fn share(self, count: usize) -> Value {
        match self {
            Real(total) => Real(total / count as f64),
            Complex(re, im) => Complex(re / count as f64, im / count as f64),
            Whole(total) => Whole(total / count as i128),
            Flag(_) => panic!("flags have no average"),
        }
    }

    /// This element scaled by a factor of its kind, or a complex one by a real.
    pub(crate) fn times(self, factor: Value) -> Value {
        match (self, factor) {
            (Real(a), Real(b)) => Real(a * b),
            (Complex(a, b), Real(c)) => Complex(a * c, b * c),
            (Complex(a, b), Complex(c, d)) => Complex(a * c - b * d, a * d + b * c),
            _ => panic!("{self:?} scaled by {factor:?}"),
        }
    }

    /// The bytes of this element as one of `dtype`.
    pub(crate) fn put(self, dtype: DType, into: &mut Vec<u8>) {
        match (self, dtype) {
            (Real(value), DType::F64) => into.extend(value.to_le_bytes()),
            (Real(value), DType::F32) => into.extend((value as f32).to_le_bytes()),
            (Real(value), DType::F16) => into.extend(f16::from_f64(value).to_le_bytes()),
            (Real(value), DType::BF16) => into.extend(bf16::from_f64(value).to_le_bytes()),
            (Complex(re, im), DType::Complex128) => [re, im].iter().for_each(|part| into.extend(part.to_le_bytes())),
            (Complex(re, im), DType::Complex64) => {
                [re, im].iter().for_each(|part| into.extend((*part as f32).to_le_bytes()))
            }
            (Whole(value), _) if dtype.class() == Class::Integer => {
                into.extend(&value.to_le_bytes()[..dtype.byte_len()]);
            }
            (Flag(value), DType::Bool) => into.push(value.into()),
            _ => panic!("{self:?} as {dtype}"),
        }
    }
}

fn real(reduce: ReduceOp, a: f64, b: f64) -> f64 {
    match reduce {
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum => a + b,
        ReduceOp::Product => a * b,
        ReduceOp::Min if b.total_cmp(&a).is_lt() => b,
        ReduceOp::Max if b.total_cmp(&a).is_gt() => b,
        _ => a,
    }
}

fn whole(reduce: ReduceOp, a: i128, b: i128) -> i128 {
    match reduce {
        ReduceOp::Product => a.wrapping_mul(b),
        ReduceOp::Min => a.min(b),
        ReduceOp::Max => a.max(b),
        ReduceOp::BitAnd => a & b,
        ReduceOp::BitOr => a | b,
        ReduceOp::BitXor => a ^ b,
        _ => a + b,
    }
}

fn flag(reduce: ReduceOp, a: bool, b: bool) -> bool {
    match reduce {
        ReduceOp::Product | ReduceOp::Min | ReduceOp::BitAnd => a && b,
        ReduceOp::BitXor => a != b,
        _ => a || b,
    }
}

/// The least and the greatest of an integer type.
pub(crate) fn bounds(dtype: DType) -> (i128, i128) {
    let bits = 8 * dtype.byte_len() as u32;
    match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        _ => (0, (1 << bits) - 1),
    }
}

#[test]
fn the_oracle_knows_its_arithmetic() {
    let whole = |reduce, all: &[i128]| Value::join(reduce, &all.iter().map(|&value| Whole(value)).collect::<Vec<_>>());
    assert_eq!(whole(ReduceOp::Avg, &[-3, -4]), Whole(-3));
    assert_eq!(whole(ReduceOp::Avg, &[127, 127, 126]), Whole(126));
    assert_eq!(whole(ReduceOp::BitXor, &[6, 3, 1]), Whole(4));
    let reals = [Real(0.0), Real(-0.0)];
    assert!(matches!(Value::join(ReduceOp::Min, &reals), Real(zero) if zero.is_sign_negative()));
    assert!(matches!(Value::join(ReduceOp::Max, &reals), Real(zero) if zero.is_sign_positive()));
    assert_eq!(Value::join(ReduceOp::Product, &[Complex(2.0, 1.0), Complex(3.0, 2.0)]), Complex(4.0, 7.0));
    let mut bytes = vec![];
    Whole(200 + 100).put(DType::U8, &mut bytes);
    Real(-1.5).put(DType::BF16, &mut bytes);
    assert_eq!(bytes, [44, 0xC0, 0xBF]);
    assert_eq!(bounds(DType::I8), (-128, 127));
}
