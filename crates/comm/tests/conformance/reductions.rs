//! Every reduction on every element type it is defined for, untyped, against the definition.

use phalanx_core::reduce::Factor;
use phalanx_core::{Counts, DType, Op, ReduceOp, Reduction};

use crate::case::hash;
use crate::numbers::{self, Number};
use crate::setting::{SMALL_WORLDS, Setting, WORLDS};

pub(crate) fn every_operation_and_type(setting: &Setting) {
    for size in SMALL_WORLDS {
        setting.run(size, |group| {
            let (rank, root) = (group.rank(), size / 2);
            for (reduce, dtype) in ReduceOp::ALL.iter().flat_map(|op| DType::ALL.map(|dtype| (*op, dtype))) {
                if reduce.supports(dtype).is_err() {
                    continue;
                }
                let mine = numbers::factor(reduce, rank).map(Factor::from);
                let count = LEN * size;
                let inputs: Vec<Vec<Number>> = (0..size).map(|rank| given(dtype, rank, count)).collect();
                let input = numbers::encode(dtype, &inputs[rank]);
                let expected = numbers::encode(dtype, &numbers::joined(reduce, &inputs, 0..count));
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
    for size in WORLDS {
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

/// What a rank gives.
fn given(dtype: DType, rank: usize, count: usize) -> Vec<Number> {
    (0..count).map(|at| numbers::pick(dtype, hash((rank * 1000 + at) as u64))).collect()
}

const LEN: usize = 11;
