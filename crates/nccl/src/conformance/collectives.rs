//! Every collective, with every element type that it moves or reduces.

use phalanx_core::{Counts, DType, Op, OpKind, ReduceOp};

use super::values::{agree, counts, elements, given, joined};
use super::{Candidate, Verdict, same};
use crate::api::{Cuda, Nccl, Process, Reducer};

/// All-reduce in place and out of place, and reduce, of every type and reduction that NCCL has.
pub(super) fn reductions<N: Nccl, C: Cuda, P: Process>(on: &Candidate<N, C, P>) -> Verdict {
    let (rank, size, len) = (on.rank(), on.size(), 5);
    let all = ReduceOp::ALL.into_iter().flat_map(|op| DType::ALL.map(|dtype| (op, dtype)));
    let has = |(op, dtype): &(ReduceOp, DType)| Reducer::of(OpKind::AllReduce, *op, *dtype, on.version).is_ok();
    for (at, (reduce, dtype)) in all.filter(has).enumerate() {
        let root = at % size;
        let (whole, own) = (joined(reduce, dtype, size, len)?, given(dtype, rank, len));
        let what = |call: &str| format!("{call} {reduce} of {dtype} on rank {rank} of {size}");
        let (op, of) = (Op::AllReduce { count: len, reduce }, (reduce, dtype, size));
        agree(&on.ran(op.clone(), dtype, None, &own)?, &whole, of, || what("all_reduce in place"))?;
        agree(&on.ran(op, dtype, Some(&own), &own)?, &whole, of, || what("all_reduce"))?;
        let reduced = on.ran(Op::Reduce { count: len, reduce, root }, dtype, None, &own)?;
        match rank == root {
            true => agree(&reduced, &whole, of, || what("reduce"))?,
            false => same(&reduced, &own, || what("reduce"))?,
        }
    }
    Ok(None)
}

/// Reduce-scatter, even and uneven.
pub(super) fn scattered<N: Nccl, C: Cuda, P: Process>(on: &Candidate<N, C, P>) -> Verdict {
    let (rank, size) = (on.rank(), on.size());
    for (dtype, reduce) in [(DType::F32, ReduceOp::Avg), (DType::BF16, ReduceOp::Sum), (DType::I64, ReduceOp::Max)] {
        let (unit, what) =
            (dtype.byte_len(), || format!("reduce_scatter {reduce} of {dtype} on rank {rank} of {size}"));
        let whole = joined(reduce, dtype, size, 3 * size)?;
        let (own, of) = (given(dtype, rank, 3 * size), (reduce, dtype, size));
        let range = rank * 3 * unit..(rank + 1) * 3 * unit;
        let op = Op::ReduceScatter { counts: Counts::Even(3), reduce };
        agree(&on.ran(op.clone(), dtype, Some(&own), &vec![0; 3 * unit])?, &whole[range.clone()], of, what)?;
        agree(&on.ran(op, dtype, None, &own)?[range.clone()], &whole[range], of, what)?;
        let table = counts(size);
        let (total, before) = (table.iter().sum::<usize>(), table[..rank].iter().sum::<usize>());
        let whole = joined(reduce, dtype, size, total)?;
        let part = &whole[before * unit..][..table[rank] * unit];
        let op = Op::ReduceScatter { counts: Counts::uneven(&table), reduce };
        agree(&on.ran(op, dtype, Some(&given(dtype, rank, total)), &vec![0; part.len()])?, part, of, what)?;
    }
    Ok(None)
}

/// Broadcast, all-gather, gather and scatter of every type.
pub(super) fn moves<N: Nccl, C: Cuda, P: Process>(on: &Candidate<N, C, P>) -> Verdict {
    let (rank, size, table) = (on.rank(), on.size(), counts(on.size()));
    let total: usize = table.iter().sum();
    for (at, dtype) in DType::ALL.into_iter().enumerate() {
        let root = at % size;
        let zeros = |len: usize| vec![0; len * dtype.byte_len()];
        let what = |call: &str| format!("{call} of {dtype} on rank {rank} of {size}");
        let own = given(dtype, rank, 2);
        let op = Op::Broadcast { count: 2, root };
        same(&on.ran(op, dtype, None, &own)?, &given(dtype, root, 2), || what("broadcast"))?;
        let all: Vec<u8> = (0..size).flat_map(|rank| given(dtype, rank, 2)).collect();
        let op = Op::AllGather { counts: Counts::Even(2) };
        same(&on.ran(op, dtype, Some(&own), &zeros(2 * size))?, &all, || what("all_gather"))?;
        let all: Vec<u8> = (0..size).flat_map(|rank| given(dtype, rank, table[rank])).collect();
        let own = given(dtype, rank, table[rank]);
        let op = Op::AllGather { counts: Counts::uneven(&table) };
        same(&on.ran(op, dtype, Some(&own), &zeros(total))?, &all, || what("uneven all_gather"))?;
        let of_root = if rank == root { &all[..] } else { &[] };
        let op = Op::Gather { counts: Counts::uneven(&table), root };
        same(&on.ran(op, dtype, Some(&own), &vec![0; of_root.len()])?, of_root, || what("gather"))?;
        let op = Op::Scatter { counts: Counts::uneven(&table), root };
        same(&on.ran(op, dtype, Some(of_root), &zeros(table[rank]))?, &own, || what("scatter"))?;
    }
    Ok(None)
}

/// All-to-all, even and uneven, and a barrier.
pub(super) fn exchanges<N: Nccl, C: Cuda, P: Process>(on: &Candidate<N, C, P>) -> Verdict {
    let (rank, size) = (on.rank(), on.size());
    let what = || format!("all_to_all on rank {rank} of {size}");
    let len = |from: usize, to: usize| (from + 2 * to) % 3;
    let part = |from: usize, to: usize| elements(DType::I32, &vec![(from * 8 + to) as i64; len(from, to)]);
    let input: Vec<u8> = (0..size).flat_map(|to| part(rank, to)).collect();
    let expected: Vec<u8> = (0..size).flat_map(|from| part(from, rank)).collect();
    let give = Counts::uneven(&(0..size).map(|to| len(rank, to)).collect::<Vec<_>>());
    let take = Counts::uneven(&(0..size).map(|from| len(from, rank)).collect::<Vec<_>>());
    let op = Op::AllToAll { give, take };
    same(&on.ran(op, DType::I32, Some(&input), &vec![0; expected.len()])?, &expected, what)?;
    let one = |from: usize, to: usize| elements(DType::U16, &[(from * 8 + to) as i64]);
    let input: Vec<u8> = (0..size).flat_map(|to| one(rank, to)).collect();
    let expected: Vec<u8> = (0..size).flat_map(|from| one(from, rank)).collect();
    let op = Op::AllToAll { give: Counts::Even(1), take: Counts::Even(1) };
    same(&on.ran(op, DType::U16, Some(&input), &vec![0; expected.len()])?, &expected, what)?;
    on.group.barrier(on.stream).and_then(|work| work.wait()).map_err(super::told)?;
    Ok(None)
}
