//! Mismatches: one rank calls something else than the others.

use fastrand::Rng;
use phalanx_core::{Counts, DType, Op, OpKind, ReduceOp};

use crate::data;
use crate::program::World;
use crate::scene::{Act, Call};

/// Lets `rank` call something else, where the act moves anything whose difference could be seen.
pub(crate) fn differ(dice: &mut Rng, world: &World, act: &mut Act, rank: usize) -> Option<()> {
    let mut call = act.calls[rank].clone();
    match dice.u8(..6) {
        0 => call.op = other_count(dice, &call.op, rank, world.size())?,
        1 => call.dtype = other_dtype(dice, &call)?,
        2 => call.op = other_reduce(dice, &call)?,
        3 => call.op = other_root(dice, &call.op, world.size())?,
        _ => call = other_call(dice, world, &call, rank)?,
    }
    call.factor = (call.op.reduce() == Some(ReduceOp::PreMulSum)).then(|| data::factor(dice, call.dtype));
    if moves_nothing(&act.calls) || !call.algorithm.plays(&call.op, call.dtype) {
        return None;
    }
    act.calls[rank] = call;
    act.odd = Some(rank);
    Some(())
}

/// Whether no rank has anything to send, so that there is nothing to disagree about.
fn moves_nothing(calls: &[Call]) -> bool {
    let needs = |(rank, call): (usize, &Call)| {
        let need = call.op.need(rank, calls.len());
        call.op.kind() == OpKind::Barrier || need.input + need.output > 0
    };
    !calls.iter().enumerate().any(needs)
}

fn other_count(dice: &mut Rng, op: &Op, rank: usize, size: usize) -> Option<Op> {
    let mut op = op.clone();
    let at = dice.usize(..size);
    match &mut op {
        Op::AllReduce { count, .. } | Op::Reduce { count, .. } | Op::Broadcast { count, .. } => {
            *count = other_number(dice, *count);
        }
        Op::AllGather { counts } | Op::ReduceScatter { counts, .. } => *counts = other_counts(dice, counts, at),
        Op::Gather { counts, .. } | Op::Scatter { counts, .. } => *counts = other_counts(dice, counts, at),
        Op::AllToAll { give, take } => {
            let peer = (rank + dice.usize(1..size)) % size;
            (*give, *take) = other_tables(dice, give, take, peer);
        }
        _ => return None,
    }
    Some(op)
}

fn other_counts(dice: &mut Rng, counts: &Counts, at: usize) -> Counts {
    match counts {
        Counts::Even(count) => Counts::Even(other_number(dice, *count)),
        Counts::Uneven(counts) => {
            let mut counts = counts.to_vec();
            counts[at] = other_number(dice, counts[at]);
            Counts::uneven(&counts)
        }
    }
}

/// Other tables of an all-to-all. What a rank gives itself is also what it takes from itself, so of uneven ones that entry stays.
fn other_tables(dice: &mut Rng, give: &Counts, take: &Counts, peer: usize) -> (Counts, Counts) {
    if give.is_even() && take.is_even() {
        let counts = other_counts(dice, give, peer);
        return (counts.clone(), counts);
    }
    if dice.bool() {
        (other_counts(dice, give, peer), take.clone())
    } else {
        (give.clone(), other_counts(dice, take, peer))
    }
}

fn other_number(dice: &mut Rng, number: usize) -> usize {
    let others = [number + 1, number * 2 + 1, number.wrapping_sub(1), 0];
    let others: Vec<usize> = others.into_iter().filter(|&other| other != number && other < usize::MAX).collect();
    others[dice.usize(..others.len())]
}

fn other_dtype(dice: &mut Rng, call: &Call) -> Option<DType> {
    let fits =
        |dtype: &DType| *dtype != call.dtype && call.op.reduce().is_none_or(|reduce| reduce.supports(*dtype).is_ok());
    dice.choice(DType::ALL.into_iter().filter(fits).collect::<Vec<_>>())
}

fn other_reduce(dice: &mut Rng, call: &Call) -> Option<Op> {
    let mut op = call.op.clone();
    let (Op::AllReduce { reduce, .. } | Op::Reduce { reduce, .. } | Op::ReduceScatter { reduce, .. }) = &mut op else {
        return None;
    };
    let fits = |other: &ReduceOp| other != reduce && other.supports(call.dtype).is_ok();
    *reduce = dice.choice(ReduceOp::ALL.into_iter().filter(fits).collect::<Vec<_>>())?;
    Some(op)
}

fn other_root(dice: &mut Rng, op: &Op, size: usize) -> Option<Op> {
    let mut op = op.clone();
    match &mut op {
        Op::Reduce { root, .. } | Op::Broadcast { root, .. } => *root = (*root + dice.usize(1..size)) % size,
        Op::Gather { root, .. } | Op::Scatter { root, .. } => *root = (*root + dice.usize(1..size)) % size,
        _ => return None,
    }
    Some(op)
}

/// Another operation altogether, played its own way.
fn other_call(dice: &mut Rng, world: &World, call: &Call, rank: usize) -> Option<Call> {
    let kind = OpKind::ALL[dice.usize(..9)];
    let other = world.act_of(dice, kind).calls.swap_remove(rank);
    (other.op.kind() != call.op.kind()).then_some(other)
}
