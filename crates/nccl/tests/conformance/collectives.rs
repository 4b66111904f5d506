//! Every collective with every element type, in worlds of 1 to 8, over memory of the device.

use phalanx_core::reduce::{combine, scale};
use phalanx_core::{Counts, DType, Op, ReduceOp};
use phalanx_nccl::api::{Reducer, Version};

use crate::seats::seeds;
use crate::setting::{Member, elements, run};

const VERSION: Version = Version::new(2, 28, 9);

/// What a rank gives at a place.
fn value(rank: usize, at: usize) -> i64 {
    (1 + (rank * 3 + at) % 4) as i64
}

fn given(dtype: DType, rank: usize, len: usize) -> Vec<u8> {
    elements(dtype, &(0..len).map(|at| value(rank, at)).collect::<Vec<_>>())
}

/// What all ranks' elements make together.
fn joined(op: ReduceOp, dtype: DType, size: usize, len: usize) -> Vec<u8> {
    let mut parts: Vec<Vec<u8>> = (0..size).map(|rank| given(dtype, rank, len)).collect();
    if op == ReduceOp::PreMulSum {
        parts.iter_mut().for_each(|part| scale(dtype, part, &FACTOR.into()).expect("scaled"));
    }
    let mut into = vec![0; len * dtype.byte_len()];
    combine(op, dtype, &mut into, &parts.iter().map(|part| &part[..]).collect::<Vec<_>>()).expect("joined");
    into
}

fn counts(size: usize) -> Vec<usize> {
    (0..size).map(|rank| rank % 3).collect()
}

/// Runs one operation and gives what is in the output then.
fn ran(member: &Member, op: Op, dtype: DType, input: Option<&[u8]>, output: &[u8]) -> Vec<u8> {
    let factor = (op.reduce() == Some(ReduceOp::PreMulSum)).then_some(FACTOR.into());
    let input = input.map(|bytes| member.upload(bytes));
    let output = member.upload(output);
    let work = member.group.submit(op, dtype, factor, (input.as_ref(), &output), member.stream).expect("submitted");
    work.fence(member.stream).expect("on its stream");
    let bytes = member.download(&output);
    work.wait().expect("done");
    bytes
}

#[test]
fn reductions_of_every_type() {
    let reductions = || ReduceOp::ALL.into_iter().flat_map(|op| DType::ALL.map(|dtype| (op, dtype)));
    let has =
        |(op, dtype): &(ReduceOp, DType)| Reducer::of(phalanx_core::OpKind::AllReduce, *op, *dtype, VERSION).is_ok();
    for seed in seeds(2) {
        for size in 1..=8 {
            run(size, seed, move |member| {
                let (rank, size) = (member.rank, member.size);
                for (at, (reduce, dtype)) in reductions().filter(has).enumerate() {
                    let (len, root) = (5, at % size);
                    let whole = joined(reduce, dtype, size, len);
                    let own = given(dtype, rank, len);
                    let what = || format!("{reduce} {dtype} rank {rank} of {size}");
                    let op = Op::AllReduce { count: len, reduce };
                    assert_eq!(ran(member, op.clone(), dtype, None, &own), whole, "{}", what());
                    assert_eq!(ran(member, op, dtype, Some(&own), &own), whole, "{}", what());
                    let op = Op::Reduce { count: len, reduce, root };
                    let expected = if rank == root { &whole } else { &own };
                    assert_eq!(&ran(member, op, dtype, None, &own), expected, "{}", what());
                }
            });
        }
    }
}

#[test]
fn scattered_reductions() {
    for (seed, size) in seeds(3).flat_map(|seed| (1..=8).map(move |size| (seed, size))) {
        run(size, seed, move |member| {
            let (rank, size) = (member.rank, member.size);
            for (dtype, reduce) in
                [(DType::F32, ReduceOp::Avg), (DType::BF16, ReduceOp::Sum), (DType::I64, ReduceOp::Max)]
            {
                let whole = joined(reduce, dtype, size, 3 * size);
                let own = given(dtype, rank, 3 * size);
                let part = &whole[rank * 3 * dtype.byte_len()..][..3 * dtype.byte_len()];
                let op = Op::ReduceScatter { counts: Counts::Even(3), reduce };
                assert_eq!(ran(member, op.clone(), dtype, Some(&own), part), part);
                let in_place = ran(member, op, dtype, None, &own);
                assert_eq!(&in_place[rank * 3 * dtype.byte_len()..][..part.len()], part);
                let table = counts(size);
                let (total, before) = (table.iter().sum::<usize>(), table[..rank].iter().sum::<usize>());
                let whole = joined(reduce, dtype, size, total);
                let part = &whole[before * dtype.byte_len()..][..table[rank] * dtype.byte_len()];
                let op = Op::ReduceScatter { counts: Counts::uneven(&table), reduce };
                let own = given(dtype, rank, total);
                assert_eq!(ran(member, op, dtype, Some(&own), &vec![0; part.len()]), part);
            }
        });
    }
}

#[test]
fn moves_of_every_type() {
    for (seed, size) in seeds(2).flat_map(|seed| (1..=8).map(move |size| (seed, size))) {
        run(size, seed, move |member| {
            let (rank, size) = (member.rank, member.size);
            for (at, dtype) in DType::ALL.into_iter().enumerate() {
                let root = at % size;
                let bytes = |len: usize| vec![0; len * dtype.byte_len()];
                let what = || format!("{dtype} rank {rank} of {size}");
                let all = |len: &dyn Fn(usize) -> usize| -> Vec<u8> {
                    (0..size).flat_map(|rank| given(dtype, rank, len(rank))).collect()
                };
                let own = given(dtype, rank, 2);
                let op = Op::Broadcast { count: 2, root };
                assert_eq!(ran(member, op, dtype, None, &own), given(dtype, root, 2), "{}", what());
                let op = Op::AllGather { counts: Counts::Even(2) };
                assert_eq!(ran(member, op, dtype, Some(&own), &bytes(2 * size)), all(&|_| 2), "{}", what());
                let table = counts(size);
                let total = table.iter().sum();
                let uneven = given(dtype, rank, table[rank]);
                let op = Op::AllGather { counts: Counts::uneven(&table) };
                let expected = all(&|rank| table[rank]);
                assert_eq!(ran(member, op, dtype, Some(&uneven), &bytes(total)), expected, "{}", what());
                let op = Op::Gather { counts: Counts::uneven(&table), root };
                let output = bytes(if rank == root { total } else { 0 });
                let got = ran(member, op, dtype, Some(&uneven), &output);
                assert_eq!(got, if rank == root { expected.clone() } else { vec![] }, "{}", what());
                let op = Op::Scatter { counts: Counts::uneven(&table), root };
                let input = if rank == root { expected.clone() } else { vec![] };
                assert_eq!(ran(member, op, dtype, Some(&input), &bytes(table[rank])), uneven, "{}", what());
            }
        });
    }
}

#[test]
fn everybody_to_everybody() {
    for (seed, size) in seeds(4).flat_map(|seed| (1..=8).map(move |size| (seed, size))) {
        run(size, seed, move |member| {
            let (rank, size) = (member.rank, member.size);
            let part =
                |from: usize, to: usize| elements(DType::I32, &vec![(from * 8 + to) as i64; (from + 2 * to) % 3]);
            let lens = |part: &dyn Fn(usize) -> Vec<u8>| (0..size).map(|peer| part(peer).len() / 4).collect::<Vec<_>>();
            let input: Vec<u8> = (0..size).flat_map(|to| part(rank, to)).collect();
            let expected: Vec<u8> = (0..size).flat_map(|from| part(from, rank)).collect();
            let give = Counts::uneven(&lens(&|to| part(rank, to)));
            let take = Counts::uneven(&lens(&|from| part(from, rank)));
            let op = Op::AllToAll { give, take };
            assert_eq!(ran(member, op, DType::I32, Some(&input), &vec![0; expected.len()]), expected);
            let (give, take) = (Counts::Even(1), Counts::Even(1));
            let input: Vec<u8> = (0..size).flat_map(|to| elements(DType::U16, &[(rank * 8 + to) as i64])).collect();
            let expected: Vec<u8> =
                (0..size).flat_map(|from| elements(DType::U16, &[(from * 8 + rank) as i64])).collect();
            let op = Op::AllToAll { give, take };
            assert_eq!(ran(member, op, DType::U16, Some(&input), &vec![0; expected.len()]), expected);
            let work = member.group.barrier(member.stream).expect("submitted");
            work.wait().expect("all came");
        });
    }
}

/// What a scaled sum scales by.
const FACTOR: f64 = 0.5;
