//! Operations that move elements and join none: every type, 8-bit floats too, comes through bit by bit.

use phalanx_core::schedule::Algorithm;
use phalanx_core::{Counts, DType, Op};

use crate::ground::{both, spread};
use crate::oracle;
use crate::replay::{Case, Stage};

const WORLDS: [usize; 6] = [1, 2, 3, 5, 8, 17];
const SIZES: [usize; 3] = [1, 7, 1000];

#[test]
fn every_type_is_moved_unchanged() {
    let mut stage = Stage::default();
    for (dtype, world) in DType::ALL.into_iter().flat_map(|dtype| WORLDS.map(|world| (dtype, world))) {
        for op in SIZES.iter().flat_map(|&size| ops(size, world)) {
            let op_of = |_: usize| op.clone();
            // An element is so many random bytes, wide enough for the widest type.
            let mut rng = fastrand::Rng::with_seed(world as u64);
            let elements: Vec<Vec<u128>> =
                (0..world).map(|rank| (0..op.need(rank, world).input).map(|_| rng.u128(..)).collect()).collect();
            let expected = oracle::outputs(&op_of, &elements, |_| 0);
            let inputs: Vec<_> = elements.iter().map(|elements| bytes(dtype, elements)).collect();
            let expected: Vec<_> =
                expected.iter().map(|output| output.as_ref().map(|elements| bytes(dtype, elements))).collect();
            for algorithm in Algorithm::ALL.into_iter().filter(|way| way.plays(&op, dtype)) {
                for hosts in spread(world, algorithm) {
                    for (in_place, segments, windows) in ways(&op, world, algorithm) {
                        let case = Case {
                            op: &op,
                            op_of: &op_of,
                            dtype,
                            hosts: &hosts,
                            algorithm,
                            segments,
                            in_place,
                            windows,
                        };
                        case.play(&inputs, &[], &mut stage);
                        case.compare(&stage, &inputs, &expected);
                    }
                }
            }
        }
    }
}

/// In place or not, in one segment or several, with windows or without, as far as the operation and the algorithm know a difference.
fn ways(op: &Op, world: usize, algorithm: Algorithm) -> impl Iterator<Item = (bool, usize, bool)> {
    let can_be_in_place = op.need_in_place(0, world).is_some();
    let all = [false, true].into_iter().flat_map(|in_place| [1, 3].map(|segments| (in_place, segments)));
    let all = all.flat_map(|(in_place, segments)| [false, true].map(|windows| (in_place, segments, windows)));
    all.filter(move |&(in_place, _, windows)| {
        (!in_place || can_be_in_place) && (!windows || algorithm == Algorithm::TwoLevel)
    })
}

fn ops(count: usize, world: usize) -> Vec<Op> {
    let root = world / 2;
    let even = Counts::Even(count.div_ceil(world));
    let mut ops = vec![Op::Broadcast { count, root }, Op::AllToAll { give: even.clone(), take: even }];
    for counts in both(count, world) {
        ops.push(Op::AllGather { counts: counts.clone() });
        ops.push(Op::Gather { counts: counts.clone(), root });
        ops.push(Op::Scatter { counts, root });
    }
    ops
}

fn bytes(dtype: DType, elements: &[u128]) -> Vec<u8> {
    let bytes = elements.iter().map(|element| element.to_le_bytes()[..dtype.byte_len()].to_vec());
    bytes.collect::<Vec<_>>().concat()
}
