//! Every reduction on every element type it is defined for, by every algorithm that plays it, against plain arithmetic.

use std::collections::BTreeSet;

use num_complex::Complex as Pair;
use phalanx_core::reduce::Factor;
use phalanx_core::schedule::Algorithm;
use phalanx_core::{Class, Counts, DType, Op, ReduceOp};

use crate::ground::{both, spread};
use crate::oracle;
use crate::replay::{Case, Stage};
use crate::value::{Value, bounds};

const WORLDS: std::ops::RangeInclusive<usize> = 1..=17;
const SEGMENTS: std::ops::RangeInclusive<usize> = 1..=3;
const SIZES: [usize; 5] = [0, 1, 2, 7, 1000];

/// The largest size, in two worlds only: schedules know no types, and the kernels no worlds.
const LARGE: [(usize, usize); 2] = [(2, 65537), (5, 65537)];

#[test]
fn all_reduce_of_every_type() {
    sweep(|count, _, reduce| vec![Op::AllReduce { count, reduce }]);
}

#[test]
fn reduce_of_every_type() {
    sweep(|count, world, reduce| vec![Op::Reduce { count, reduce, root: world / 2 }]);
}

#[test]
fn reduce_scatter_of_every_type() {
    sweep(|count, world, reduce| {
        let scattered = |counts| Op::ReduceScatter { counts, reduce };
        both(count, world).map(scattered).to_vec()
    });
}

#[test]
fn as_many_pairs_are_defined_as_the_rules_say() {
    let (floats, integers, bool, complex) = (4 * 6, 8 * 8, 7, 2 * 4);
    assert_eq!(pairs().len(), floats + integers + bool + complex);
}

#[test]
fn whoever_folds_pair_by_pair_declines_an_average_whose_sum_does_not_fit() {
    let reduce = ReduceOp::Avg;
    let ops = [
        Op::AllReduce { count: 4, reduce },
        Op::Reduce { count: 4, reduce, root: 0 },
        Op::ReduceScatter { counts: Counts::Even(4), reduce },
    ];
    for (op, algorithm) in ops.iter().flat_map(|op| Algorithm::ALL.map(|algorithm| (op, algorithm))) {
        let holds_all = matches!(algorithm, Algorithm::Exchange | Algorithm::Direct | Algorithm::AtOnce);
        for dtype in [DType::I32, DType::F16] {
            assert_eq!(algorithm.plays(op, dtype), holds_all && algorithm.plays(op, DType::F32));
        }
    }
}

/// Plays one operation with every pair of reduction and type, world, size and algorithm. Dice choose whether it is in place and how many
/// segments it has: what takes turns beside a loop over algorithms would be the same for each of them every time.
fn sweep(ops: impl Fn(usize, usize, ReduceOp) -> Vec<Op>) {
    let mut stage = Stage::default();
    let mut dice = fastrand::Rng::with_seed(0);
    for (reduce, dtype) in pairs() {
        let mut met = BTreeSet::new();
        for (world, size) in WORLDS.flat_map(|world| SIZES.map(|size| (world, size))).chain(LARGE) {
            for op in ops(size, world, reduce) {
                let scene = Scene::new(&op, dtype, world);
                for algorithm in Algorithm::ALL {
                    if algorithm.plays(&op, dtype) {
                        let (in_place, segments) = (dice.bool(), dice.usize(SEGMENTS));
                        met.insert((algorithm, in_place, segments));
                        scene.play(&op, dtype, (algorithm, segments, in_place), &mut stage);
                    }
                }
            }
        }
        for &(algorithm, ..) in &met {
            let ways =
                [false, true].into_iter().flat_map(|in_place| SEGMENTS.map(move |segments| (in_place, segments)));
            for (in_place, segments) in ways {
                let way = (algorithm, in_place, segments);
                assert!(met.contains(&way), "{reduce} of {dtype} is never played by {way:?}");
            }
        }
    }
}

/// Every reduction with every type that it is defined for.
fn pairs() -> Vec<(ReduceOp, DType)> {
    let all = ReduceOp::ALL.into_iter().flat_map(|reduce| DType::ALL.map(|dtype| (reduce, dtype)));
    all.filter(|(reduce, dtype)| reduce.supports(*dtype).is_ok()).collect()
}

/// What all ranks give and should get.
struct Scene {
    world: usize,
    inputs: Vec<Vec<u8>>,
    factors: Vec<Factor>,
    expected: Vec<Option<Vec<u8>>>,
}

impl Scene {
    fn new(op: &Op, dtype: DType, world: usize) -> Scene {
        let reduce = op.reduce().expect("a reduction");
        let values: Vec<Vec<Value>> = (0..world)
            .map(|rank| (0..op.need(rank, world).input).map(|at| given(reduce, dtype, rank, at)).collect())
            .collect();
        let scales: Vec<Value> = (0..world).map(|rank| scale_of(dtype, rank)).collect();
        let scaled: Vec<Vec<Value>> = if reduce == ReduceOp::PreMulSum {
            let times =
                |(values, scale): (&Vec<Value>, &Value)| values.iter().map(|value| value.times(*scale)).collect();
            values.iter().zip(&scales).map(times).collect()
        } else {
            values.clone()
        };
        let expected = oracle::outputs(&|_| op.clone(), &scaled, |all| Value::join(reduce, all));
        Scene {
            world,
            inputs: values.iter().map(|values| bytes(dtype, values)).collect(),
            factors: scales.into_iter().filter_map(factor).collect(),
            expected: expected.into_iter().map(|output| output.map(|values| bytes(dtype, &values))).collect(),
        }
    }

    fn play(
        &self,
        op: &Op,
        dtype: DType,
        (algorithm, segments, in_place): (Algorithm, usize, bool),
        stage: &mut Stage,
    ) {
        for hosts in spread(self.world, algorithm) {
            for windows in [false, true] {
                if windows && algorithm != Algorithm::TwoLevel {
                    continue;
                }
                let case =
                    Case { op, op_of: &|_| op.clone(), dtype, hosts: &hosts, algorithm, segments, in_place, windows };
                case.play(&self.inputs, &self.factors, stage);
                case.compare(stage, &self.inputs, &self.expected);
                if case.lend(&self.inputs, stage) {
                    case.compare(stage, &self.inputs, &self.expected);
                }
            }
        }
    }
}

fn bytes(dtype: DType, values: &[Value]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() * dtype.byte_len());
    values.iter().for_each(|value| value.put(dtype, &mut bytes));
    bytes
}

/// An element for which the reduction is exact in every order, whatever the type's precision.
fn given(reduce: ReduceOp, dtype: DType, rank: usize, at: usize) -> Value {
    let mix = rank * 7 + at * 5 + rank * at;
    match dtype.class() {
        Class::Integer => Value::Whole(integer(dtype, rank, at)),
        Class::Bool => Value::Flag(!(rank + at).is_multiple_of(3 + at % 5)),
        Class::Complex if reduce == ReduceOp::Product => complex_factor(rank, at),
        Class::Complex => Value::Complex((mix % 7) as f64 - 3.0, (mix / 2 % 7) as f64 - 3.0),
        _ if reduce == ReduceOp::Product => Value::Real([1.0, -2.0, -1.0, 0.5, -1.0, 2.0, 1.0][mix % 7]),
        _ if matches!(reduce, ReduceOp::Min | ReduceOp::Max) && at.is_multiple_of(2) => {
            Value::Real([0.0, -0.0][mix % 5 % 2])
        }
        _ => Value::Real((mix % 7) as f64 - 3.0),
    }
}

/// Near either end of the type, so that sums wrap and widened sums must not, or small.
fn integer(dtype: DType, rank: usize, at: usize) -> i128 {
    let (least, greatest) = bounds(dtype);
    let small = ((rank * 7 + at * 5) % 23) as i128;
    match at % 4 {
        0 => greatest - small,
        1 => least + small,
        2 if rank.is_multiple_of(2) => (small - 11).max(least),
        _ => small,
    }
}

/// Gaussian integers of which no product has a part that is zero, whose sign would depend on the order; and so few large
/// ones that every product is exact in `f32`.
fn complex_factor(rank: usize, at: usize) -> Value {
    let sign = if (rank + at).is_multiple_of(3) { -1.0 } else { 1.0 };
    if rank.is_multiple_of(8) { Value::Complex(3.0 * sign, 2.0 * sign) } else { Value::Complex(2.0 * sign, sign) }
}

/// A rank's factor: small, so that scaled sums stay exact; on complex elements every other rank's is complex.
fn scale_of(dtype: DType, rank: usize) -> Value {
    let real = [1.0, -2.0, 3.0, 2.0, -1.0][rank % 5];
    if dtype.class() == Class::Complex && rank % 2 == 1 {
        Value::Complex(real, [1.0, -1.0, 2.0][rank % 3])
    } else {
        Value::Real(real)
    }
}

fn factor(value: Value) -> Option<Factor> {
    match value {
        Value::Real(real) => Some(Factor::Real(real)),
        Value::Complex(re, im) => Some(Factor::Complex(Pair { re, im })),
        _ => None,
    }
}
