//! The data of a scene: random bits where bits are moved or integers joined, numbers that no order of joining rounds elsewhere.

use fastrand::Rng;
use num_complex::Complex;
use phalanx_core::reduce::Factor;
use phalanx_core::{Class, DType, ReduceOp};

use crate::number::Number;
use crate::scene::{Act, Call};

/// What every rank gives to an act.
pub(crate) fn inputs(dice: &mut Rng, act: &Act) -> Vec<Vec<u8>> {
    let size = act.calls.len();
    let of = |(rank, call): (usize, &Call)| input(dice, call, call.op.need(rank, size).input);
    act.calls.iter().enumerate().map(of).collect()
}

/// A factor that scales without rounding.
pub(crate) fn factor(dice: &mut Rng, dtype: DType) -> Factor {
    let mut real = || [1.0, 2.0, -1.0, 0.5][dice.usize(..4)];
    let (re, im) = (real(), real());
    if dtype.class() == Class::Complex && dice.bool() {
        Factor::Complex(Complex::new(re, im))
    } else {
        Factor::Real(re)
    }
}

fn input(dice: &mut Rng, call: &Call, len: usize) -> Vec<u8> {
    let (dtype, class) = (call.dtype, call.dtype.class());
    let Some(reduce) = call.op.reduce().filter(|_| class != Class::Integer) else {
        let mut bytes = vec![0; len * dtype.byte_len()];
        dice.fill(&mut bytes);
        return bytes;
    };
    let mut bytes = Vec::with_capacity(len * dtype.byte_len());
    for _ in 0..len {
        let number = match class {
            Class::Bool => Number::Whole(dice.bool().into()),
            Class::Complex => pair(dice, reduce),
            _ => real(dice, reduce),
        };
        number.encode(dtype, &mut bytes);
    }
    bytes
}

/// Small enough that nine of them, scaled, join without rounding in eight bits of precision.
fn real(dice: &mut Rng, reduce: ReduceOp) -> Number {
    let special = dice.u8(..);
    Number::Real(match reduce {
        ReduceOp::Product => [1.0, -1.0, 2.0, -2.0][dice.usize(..4)],
        ReduceOp::PreMulSum => dice.i8(-3..=3).into(),
        _ if special == 0 => f64::NAN,
        _ if special == 1 => -0.0,
        _ => dice.i8(-3..=3).into(),
    })
}

/// Products are of 2 + i and its turns: no power of it has a part that is zero, whose sign would depend on the order.
fn pair(dice: &mut Rng, reduce: ReduceOp) -> Number {
    if reduce == ReduceOp::Product {
        let (re, im) = [(2.0, 1.0), (-1.0, 2.0), (-2.0, -1.0), (1.0, -2.0)][dice.usize(..4)];
        return Number::Pair(re, im);
    }
    Number::Pair(dice.i8(-3..=3).into(), dice.i8(-3..=3).into())
}
