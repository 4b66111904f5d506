//! A collective as its numbers, what each rank gives, and what each must get.

use std::iter::repeat_with;
use std::ops::Range;

use fastrand::Rng;
use phalanx_core::reduce::Factor;
use phalanx_core::{Counts, DType, Op, OpKind, ReduceOp};

use super::act::{Act, Right, bytes, stale};
use crate::case::hash;
use crate::numbers::{self, Number};

/// One collective of a team.
#[derive(Clone, Debug)]
pub(super) struct Collective {
    kind: OpKind,
    dtype: DType,
    reduce: ReduceOp,
    root: usize,
    /// Elements of each rank's part; of operations without parts, the first counts.
    counts: Vec<usize>,
    /// Elements that each rank gives to each, by giver and taker.
    table: Vec<Vec<usize>>,
    is_even: bool,
    in_place: bool,
    /// Decides every element.
    stem: u64,
}

impl Collective {
    /// Some collective of `size` ranks, with buffers of at most `longest` elements.
    pub(super) fn draw(draw: &mut Rng, size: usize, longest: usize) -> Collective {
        let kind = KINDS[draw.usize(..KINDS.len())];
        let (dtype, reduce) = loop {
            let (dtype, reduce) =
                (DType::ALL[draw.usize(..DType::ALL.len())], ReduceOp::ALL[draw.usize(..ReduceOp::ALL.len())]);
            if !REDUCTIONS.contains(&kind) || reduce.supports(dtype).is_ok() {
                break (dtype, reduce);
            }
        };
        let is_sliced = ![OpKind::AllReduce, OpKind::Reduce, OpKind::Broadcast].contains(&kind);
        let longest = if is_sliced { longest / size } else { longest };
        let is_even = draw.bool();
        let even = draw.usize(..=longest);
        let mut part = || if is_even { even } else { draw.usize(..=longest) * usize::from(draw.u8(..8) > 0) };
        let counts = repeat_with(&mut part).take(size).collect();
        let table = repeat_with(|| repeat_with(&mut part).take(size).collect()).take(size).collect();
        let (root, in_place, stem) = (draw.usize(..size), draw.bool(), draw.u64(..));
        Collective { kind, dtype, reduce, root, counts, table, is_even, in_place, stem }
    }

    /// The part of one rank.
    pub(super) fn act(&self, rank: usize) -> Act {
        let (op, unit) = (self.op(rank), self.dtype.byte_len());
        let factor = self.reduces().then(|| numbers::factor(self.reduce, rank)).flatten().map(Factor::from);
        let need = op.need(rank, self.size());
        let in_place = op.need_in_place(rank, self.size()).filter(|_| self.in_place);
        let given = self.given(rank);
        let (input, output) = match in_place {
            None => (Some(given), stale(need.output * unit)),
            Some(len) => (None, self.before(rank, given, len * unit)),
        };
        let right = self.right(rank, in_place.is_some());
        Act { op, dtype: self.dtype, factor, input, output, right }
    }

    fn op(&self, rank: usize) -> Op {
        let (count, reduce, root) = (self.counts[0], self.reduce, self.root);
        let counts = |counts: &[usize]| match self.is_even {
            true => Counts::Even(counts[0]),
            false => Counts::uneven(counts),
        };
        let parts = counts(&self.counts);
        match self.kind {
            OpKind::AllReduce => Op::AllReduce { count, reduce },
            OpKind::Reduce => Op::Reduce { count, reduce, root },
            OpKind::Broadcast => Op::Broadcast { count, root },
            OpKind::AllGather => Op::AllGather { counts: parts },
            OpKind::ReduceScatter => Op::ReduceScatter { counts: parts, reduce },
            OpKind::AllToAll => {
                let take: Vec<usize> = self.table.iter().map(|row| row[rank]).collect();
                Op::AllToAll { give: counts(&self.table[rank]), take: counts(&take) }
            }
            OpKind::Gather => Op::Gather { counts: parts, root },
            OpKind::Scatter => Op::Scatter { counts: parts, root },
            _ => Op::Barrier,
        }
    }

    /// What a rank gives.
    fn given(&self, rank: usize) -> Vec<u8> {
        if self.reduces() {
            return numbers::encode(self.dtype, &self.numbers(rank));
        }
        let need = self.op(rank).need(rank, self.size());
        bytes(self.stem_of(rank), need.input * self.dtype.byte_len())
    }

    /// What is in the one buffer of an operation in place before: what the rank gives, where it belongs.
    fn before(&self, rank: usize, given: Vec<u8>, byte_len: usize) -> Vec<u8> {
        match self.kind {
            OpKind::AllGather => {
                let mut output = stale(byte_len);
                output[self.part(rank)].copy_from_slice(&given);
                output
            }
            OpKind::Broadcast if rank != self.root => stale(byte_len),
            _ => given,
        }
    }

    fn right(&self, rank: usize, in_place: bool) -> Right {
        let all = |bytes| Right::Bytes { start: 0, bytes };
        let is_root = rank == self.root;
        let unit = self.dtype.byte_len();
        match self.kind {
            OpKind::AllReduce => all(self.joined(0..self.counts[0])),
            OpKind::Reduce if is_root => all(self.joined(0..self.counts[0])),
            OpKind::Reduce if in_place => all(self.given(rank)),
            OpKind::Broadcast => all(self.given(self.root)),
            OpKind::ReduceScatter => {
                let part = self.part(rank);
                let bytes = self.joined(part.start / unit..part.end / unit);
                Right::Bytes { start: if in_place { part.start } else { 0 }, bytes }
            }
            OpKind::AllToAll => {
                let from = |giver: usize| {
                    let row = &self.table[giver];
                    let start = row[..rank].iter().sum::<usize>() * unit;
                    self.given(giver)[start..start + row[rank] * unit].to_vec()
                };
                all((0..self.size()).flat_map(from).collect())
            }
            OpKind::Gather if !is_root => all(vec![]),
            OpKind::AllGather | OpKind::Gather => all((0..self.size()).flat_map(|from| self.given(from)).collect()),
            OpKind::Scatter => all(self.given(self.root)[self.part(rank)].to_vec()),
            _ => all(vec![]),
        }
    }

    /// The bytes of a rank's part among those of all.
    fn part(&self, rank: usize) -> Range<usize> {
        let unit = self.dtype.byte_len();
        let start = self.counts[..rank].iter().sum::<usize>() * unit;
        start..start + self.counts[rank] * unit
    }

    /// The reduction of these elements of all ranks.
    fn joined(&self, places: Range<usize>) -> Vec<u8> {
        let inputs: Vec<Vec<Number>> = (0..self.size()).map(|rank| self.numbers(rank)).collect();
        numbers::encode(self.dtype, &numbers::joined(self.reduce, &inputs, places))
    }

    /// What a rank gives to a reduction.
    fn numbers(&self, rank: usize) -> Vec<Number> {
        let count = self.op(rank).need(rank, self.size()).input;
        let stem = self.stem_of(rank);
        (0..count as u64).map(|at| numbers::pick(self.dtype, hash(stem ^ at))).collect()
    }

    fn stem_of(&self, rank: usize) -> u64 {
        hash(self.stem ^ rank as u64)
    }

    fn size(&self) -> usize {
        self.counts.len()
    }

    fn reduces(&self) -> bool {
        REDUCTIONS.contains(&self.kind)
    }
}

const REDUCTIONS: [OpKind; 3] = [OpKind::AllReduce, OpKind::Reduce, OpKind::ReduceScatter];
const KINDS: [OpKind; 9] = [
    OpKind::AllReduce,
    OpKind::Reduce,
    OpKind::Broadcast,
    OpKind::AllGather,
    OpKind::ReduceScatter,
    OpKind::AllToAll,
    OpKind::Gather,
    OpKind::Scatter,
    OpKind::Barrier,
];
