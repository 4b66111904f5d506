//! What is chosen when: always something that can be played, by the rules of docs/algorithms.md, in offers that fit.

use phalanx_core::schedule::{Algorithm, Ground, Pieces, Step, choose};
use phalanx_core::{Counts, DType, Layout, Op, ReduceOp};

use crate::ground::{SIZES, WORLDS, both, spread};
use crate::replay::Case;

/// None, one that no element divides but the shortest, and one as slots really are.
const SLOTS: [usize; 3] = [0, 1001, 4096];

#[test]
fn what_is_chosen_can_be_played_everywhere_and_is_chosen_by_all() {
    everywhere(|op, dtype, hosts, ground| {
        let all: Vec<_> = (0..hosts.len())
            .map(|rank| choose(op, dtype, &Layout::new(rank, hosts.to_vec()).unwrap(), ground))
            .collect();
        let (algorithm, segments) = all[0];
        assert!(all.iter().all(|&choice| choice == all[0]), "{op:?} {dtype} {hosts:?}");
        assert!(algorithm.plays(op, dtype), "{algorithm} {op:?} {dtype}");
        assert!(segments > 0, "{algorithm} {op:?} {dtype}");
    });
}

#[test]
fn offers_fit_their_slots() {
    everywhere(|op, dtype, hosts, ground| {
        let layout = Layout::new(0, hosts.to_vec()).unwrap();
        let (algorithm, segments) = choose(op, dtype, &layout, ground);
        if ground.slot_byte_len == 0 {
            return;
        }
        let case =
            Case { op, op_of: &|_| op.clone(), dtype, hosts, algorithm, segments, in_place: false, windows: true };
        for step in case.schedules().unwrap().iter().flat_map(|schedule| &schedule.steps) {
            if let Step::Offer { spans, .. } = step {
                let byte_len = spans.iter().map(|span| span.len).sum::<usize>() * dtype.byte_len();
                assert!(byte_len <= ground.slot_byte_len, "{case:?}: an offer of {byte_len} bytes");
            }
        }
    });
}

#[test]
fn the_rules_are_those_of_the_page() {
    let (small, large) = (1000, 1 << 20);
    let all_reduce = |count, reduce| Op::AllReduce { count, reduce };
    let broadcast = |count| Op::Broadcast { count, root: 1 };
    let reduce = |count| Op::Reduce { count, reduce: ReduceOp::Sum, root: 1 };
    let sum = ReduceOp::Sum;
    let windows = Ground { slot_byte_len: 1 << 20, ..Ground::default() };
    let links = Ground::default();
    let (one, many, hosts) = (vec![0; 4], vec![0; 5], vec![0, 0, 1, 1]);
    let cases: [(Op, DType, &[u32], &Ground, Algorithm); 23] = [
        (all_reduce(small, sum), DType::F32, &one, &windows, Algorithm::AtOnce),
        (all_reduce(large, sum), DType::F32, &one, &windows, Algorithm::Direct),
        (all_reduce(large, sum), DType::F32, &one[..2], &windows, Algorithm::AtOnce),
        (all_reduce(small, sum), DType::F32, &one, &links, Algorithm::Doubling),
        (all_reduce(large, sum), DType::F32, &one, &links, Algorithm::Ring),
        (all_reduce(large, sum), DType::BF16, &one, &links, Algorithm::Exchange),
        (all_reduce(large, sum), DType::F32, &hosts, &windows, Algorithm::TwoLevel),
        (all_reduce(large, sum), DType::BF16, &hosts, &links, Algorithm::TwoLevel),
        (all_reduce(large, sum), DType::F32, &[0, 1, 2], &links, Algorithm::Ring),
        (all_reduce(small, ReduceOp::Avg), DType::I64, &hosts, &links, Algorithm::Exchange),
        (all_reduce(small, ReduceOp::Avg), DType::F16, &hosts, &links, Algorithm::Exchange),
        (gather(small), DType::U8, &one, &links, Algorithm::Tree),
        (gather(large), DType::U8, &one, &links, Algorithm::Exchange),
        (broadcast(small), DType::U8, &one[..2], &links, Algorithm::Tree),
        (broadcast(large), DType::U8, &one[..2], &links, Algorithm::Chain),
        (broadcast(large), DType::U8, &one, &links, Algorithm::Tree),
        (broadcast(large), DType::U8, &many, &links, Algorithm::Ring),
        (broadcast(5 * links.segment_byte_len), DType::U8, &many, &links, Algorithm::Chain),
        (reduce(large), DType::U8, &one, &links, Algorithm::Tree),
        (reduce(large), DType::U8, &many, &links, Algorithm::Exchange),
        (reduce(5 * links.segment_byte_len), DType::U8, &many, &links, Algorithm::Chain),
        (reduce(5 * links.segment_byte_len), DType::BF16, &many, &links, Algorithm::Exchange),
        (Op::Barrier, DType::U8, &hosts, &windows, Algorithm::Dissemination),
    ];
    for (op, dtype, hosts, ground, expected) in cases {
        let layout = Layout::new(0, hosts.to_vec()).unwrap();
        let (chosen, _) = choose(&op, dtype, &layout, ground);
        assert_eq!(chosen, expected, "{op:?} {dtype} {hosts:?} {ground:?}");
    }
}

#[test]
fn no_piece_over_links_is_longer_than_a_segment_however_uneven_the_slices() {
    let (ground, layout) = (Ground::default(), Layout::one_host(0, 4).unwrap());
    let sum = ReduceOp::Sum;
    for longest in [4 << 20, (4 << 20) + 1] {
        let counts = Counts::uneven(&[longest, 0, 0, 0]);
        for (op, dtype, expected) in [
            (Op::ReduceScatter { counts: counts.clone(), reduce: sum }, DType::U8, Algorithm::Ring),
            (Op::ReduceScatter { counts: counts.clone(), reduce: sum }, DType::BF16, Algorithm::Exchange),
            (Op::AllGather { counts: counts.clone() }, DType::U8, Algorithm::Ring),
            (Op::AllReduce { count: 4 * longest - 3, reduce: sum }, DType::F32, Algorithm::Ring),
        ] {
            let (algorithm, segments) = choose(&op, dtype, &layout, &ground);
            assert_eq!(algorithm, expected, "{op:?}");
            let piece = longest.div_ceil(segments) * dtype.byte_len();
            assert!(piece <= ground.segment_byte_len, "{op:?} {dtype}: a piece of {piece} bytes");
        }
    }
}

#[test]
fn what_two_ranks_fold_whole_is_cut_into_short_pieces_if_not_into_too_many() {
    let ground = Ground { slot_byte_len: 129 << 10, ..Ground::default() };
    let layout = Layout::one_host(0, 2).unwrap();
    let pieces_of = |ground: &Ground, kib: usize| {
        let op = Op::AllReduce { count: kib << 10, reduce: ReduceOp::Sum };
        let (algorithm, pieces) = choose(&op, DType::U8, &layout, ground);
        assert_eq!(algorithm, Algorithm::AtOnce);
        pieces
    };
    let sizes = [0, 128, 256, 512, 1 << 10, 4 << 10, 64 << 10];
    assert_eq!(sizes.map(|kib| pieces_of(&ground, kib)), [1, 1, 8, 16, 32, 32, 509]);
    let roomy = Ground { slot_byte_len: 257 << 10, ..ground };
    assert_eq!(sizes.map(|kib| pieces_of(&roomy, kib)), [1, 1, 8, 16, 32, 32, 509], "no longer in longer slots");
    let pieces = Pieces { most: 2, shortest: 128 << 10, longest: 257 << 10 };
    let long = Ground { slot_byte_len: 257 << 10, pieces, ..Ground::default() };
    assert_eq!(sizes.map(|kib| pieces_of(&long, kib)), [1, 1, 2, 2, 4, 16, 256]);
}

fn gather(count: usize) -> Op {
    Op::Gather { counts: Counts::Even(count), root: 0 }
}

/// Every operation, world, spread and size, with windows and without, for types that are chosen for differently.
fn everywhere(act: impl Fn(&Op, DType, &[u32], &Ground)) {
    for (world, size) in WORLDS.flat_map(|world| SIZES.map(|size| (world, size))) {
        for (op, dtype) in ops(size, world) {
            for hosts in spread(world, Algorithm::TwoLevel) {
                for slot_byte_len in SLOTS {
                    let ground = Ground { slot_byte_len, ..Ground::default() };
                    act(&op, dtype, &hosts, &ground);
                }
            }
        }
    }
}

fn ops(count: usize, world: usize) -> Vec<(Op, DType)> {
    let root = world / 2;
    let mut ops = vec![(Op::Barrier, DType::U8), (Op::Broadcast { count, root }, DType::Complex128)];
    let joins = [(ReduceOp::Sum, DType::F64), (ReduceOp::Sum, DType::F16), (ReduceOp::Avg, DType::I8)];
    for (reduce, dtype) in joins {
        ops.push((Op::AllReduce { count, reduce }, dtype));
        ops.push((Op::Reduce { count, reduce, root }, dtype));
        let scattered = |counts| (Op::ReduceScatter { counts, reduce }, dtype);
        ops.extend(both(count, world).map(scattered));
    }
    for counts in both(count, world) {
        ops.push((Op::AllGather { counts: counts.clone() }, DType::F32));
        ops.push((Op::AllToAll { give: counts.clone(), take: counts.clone() }, DType::F8E5M2));
        let (gather, scatter) = (counts.clone(), counts);
        ops.push((Op::Gather { counts: gather, root }, DType::I16));
        ops.push((Op::Scatter { counts: scatter, root }, DType::Bool));
    }
    ops
}
