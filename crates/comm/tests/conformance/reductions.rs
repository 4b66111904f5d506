//! Every reduction on every element type it is defined for, untyped, against the definition.

use half::{bf16, f16};
use phalanx_core::reduce::Factor;
use phalanx_core::{Class, Counts, DType, Op, ReduceOp, Reduction};

use crate::case::hash;
use crate::setting::Setting;

/// One element as a number of its class.
#[derive(Clone, Copy, Debug)]
enum Number {
    Real(f64),
    Whole(i128),
    Flag(bool),
    Complex(f64, f64),
}

pub(crate) fn every_operation_and_type(setting: &Setting) {
    for size in [1, 2, 3, 5] {
        setting.run(size, |group| {
            let (rank, root) = (group.rank(), size / 2);
            for (reduce, dtype) in ReduceOp::ALL.iter().flat_map(|op| DType::ALL.map(|dtype| (*op, dtype))) {
                if reduce.supports(dtype).is_err() {
                    continue;
                }
                let factor = |rank: usize| (reduce == ReduceOp::PreMulSum).then(|| [2.0, -1.0, 0.5][rank % 3]);
                let mine = factor(rank).map(Factor::from);
                let count = LEN * size;
                let input = encode(dtype, &given(dtype, rank, count));
                let expected = encode(dtype, &joined(reduce, dtype, size, count, factor));
                let unit = dtype.byte_len();

                let mut got = vec![0xAA; count * unit];
                let op = Op::AllReduce { count, reduce };
                group.run_bytes(op.clone(), dtype, mine, Some(&input), &mut got).unwrap();
                assert_eq!(got, expected, "all_reduce {reduce} {dtype} in {size}");
                got.clone_from(&input);
                group.run_bytes(op, dtype, mine, None, &mut got).unwrap();
                assert_eq!(got, expected, "all_reduce {reduce} {dtype} in {size} in place");

                got.clone_from(&input);
                let op = Op::Reduce { count, reduce, root };
                group.run_bytes(op, dtype, mine, None, &mut got).unwrap();
                let at_root = if rank == root { &expected } else { &input };
                assert_eq!(&got, at_root, "reduce {reduce} {dtype} in {size} on {rank}");

                let mut got = vec![0xAA; LEN * unit];
                let op = Op::ReduceScatter { counts: Counts::Even(LEN), reduce };
                group.run_bytes(op, dtype, mine, Some(&input), &mut got).unwrap();
                let slice = &expected[rank * LEN * unit..][..LEN * unit];
                assert_eq!(got, slice, "reduce_scatter {reduce} {dtype} in {size}");
            }
        });
    }
}

/// A factor that differs by rank, typed.
pub(crate) fn scaled(setting: &Setting) {
    for size in [1, 2, 5, 9] {
        setting.run(size, |group| {
            let factor = 0.5 * (group.rank() as f64 + 1.0);
            let total = 0.25 * (size * (size + 1)) as f32;
            for len in [0, 1, 777] {
                let mut data = vec![3.0_f32; len];
                group.all_reduce(&mut data, Reduction::scaled(factor)).unwrap();
                assert_eq!(data, vec![3.0 * total; len]);
                let work = group.reduce_async(vec![1.0_f32; len], Reduction::scaled(factor), 0).unwrap();
                let expected = if group.rank() == 0 { total } else { 1.0 };
                assert_eq!(work.wait().unwrap(), vec![expected; len]);
                let mut part = vec![0.0_f32; len];
                let whole = vec![2.0_f32; len * size];
                group.reduce_scatter(&whole, &mut part, Reduction::scaled(factor)).unwrap();
                assert_eq!(part, vec![2.0 * total; len]);
            }
        });
    }
}

/// Numbers of which every sum and product of five is exact, or wraps as it should.
fn given(dtype: DType, rank: usize, count: usize) -> Vec<Number> {
    let pick = |at: usize| {
        let hash = hash((rank * 1000 + at) as u64);
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
    };
    (0..count).map(pick).collect()
}

fn joined(
    reduce: ReduceOp,
    dtype: DType,
    size: usize,
    count: usize,
    factor: impl Fn(usize) -> Option<f64>,
) -> Vec<Number> {
    let inputs: Vec<Vec<Number>> = (0..size).map(|rank| given(dtype, rank, count)).collect();
    let of = |rank: usize, at: usize| match (inputs[rank][at], factor(rank)) {
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
    (0..count).map(join).collect()
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

fn encode(dtype: DType, numbers: &[Number]) -> Vec<u8> {
    let bytes = |number: &Number| match (*number, dtype) {
        (Number::Real(value), DType::F64) => value.to_le_bytes().to_vec(),
        (Number::Real(value), DType::F32) => (value as f32).to_le_bytes().to_vec(),
        (Number::Real(value), DType::F16) => f16::from_f32(value as f32).to_le_bytes().to_vec(),
        (Number::Real(value), _) => bf16::from_f32(value as f32).to_le_bytes().to_vec(),
        (Number::Whole(value), _) => value.to_le_bytes()[..dtype.byte_len()].to_vec(),
        (Number::Flag(value), _) => vec![u8::from(value)],
        (Number::Complex(re, im), DType::Complex64) => [(re as f32).to_le_bytes(), (im as f32).to_le_bytes()].concat(),
        (Number::Complex(re, im), _) => [re.to_le_bytes(), im.to_le_bytes()].concat(),
    };
    numbers.iter().flat_map(bytes).collect()
}

const LEN: usize = 11;
