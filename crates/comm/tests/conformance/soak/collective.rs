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
pub(crate) struct Collective {
    shape: Shape,
    root: usize,
    /// Elements of each rank's part; of operations without parts, the first counts.
    counts: Vec<usize>,
    /// Elements that each rank gives to each, by giver and taker.
    table: Vec<Vec<usize>>,
    /// Decides every element.
    stem: u64,
}

/// A collective without its lengths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    kind: OpKind,
    dtype: DType,
    reduce: ReduceOp,
    is_even: bool,
    in_place: bool,
}

impl Collective {
    /// Some collective of `size` ranks, with buffers of at most `longest` elements.
    pub(super) fn draw(draw: &mut Rng, size: usize, longest: usize) -> Collective {
        let kind = kinds().nth(draw.usize(..kinds().count())).expect("below their count");
        let all = Collective::shapes(kind);
        Collective::new(all[draw.usize(..all.len())], draw, size, longest)
    }

    /// Every collective on every element type with every reduction that it has, of even and uneven parts, apart and in place.
    pub(crate) fn all_shapes() -> Vec<Shape> {
        kinds().flat_map(Collective::shapes).collect()
    }

    fn shapes(kind: OpKind) -> Vec<Shape> {
        let dtypes = if kind == OpKind::Barrier { vec![DType::U8] } else { DType::ALL.to_vec() };
        let forms = |is_there: bool| if is_there { vec![false, true] } else { vec![false] };
        let mut all = vec![];
        for (dtype, reduce) in dtypes.into_iter().flat_map(|dtype| reductions(kind, dtype)) {
            for is_even in forms(SLICED.contains(&kind)) {
                let shape = |in_place| Shape { kind, dtype, reduce, is_even, in_place };
                all.extend(forms(IN_PLACE.contains(&kind)).into_iter().map(shape));
            }
        }
        all
    }

    /// A collective of this shape among `size` ranks, with buffers of at most `longest` elements.
    pub(crate) fn new(shape: Shape, draw: &mut Rng, size: usize, longest: usize) -> Collective {
        let longest = if SLICED.contains(&shape.kind) { longest / size } else { longest };
        let even = draw.usize(..=longest);
        let mut part = || if shape.is_even { even } else { draw.usize(..=longest) * usize::from(draw.u8(..8) > 0) };
        let counts = repeat_with(&mut part).take(size).collect();
        let table = repeat_with(|| repeat_with(&mut part).take(size).collect()).take(size).collect();
        let (root, stem) = (draw.usize(..size), draw.u64(..));
        Collective { shape, root, counts, table, stem }
    }

    /// The part of one rank.
    pub(crate) fn act(&self, rank: usize) -> Act {
        let (op, unit) = (self.op(rank), self.shape.dtype.byte_len());
        let factor = self.reduces().then(|| numbers::factor(self.shape.reduce, rank)).flatten().map(Factor::from);
        let need = op.need(rank, self.size());
        let in_place = op.need_in_place(rank, self.size()).filter(|_| self.shape.in_place);
        let given = self.given(rank);
        let (input, output) = match in_place {
            None => (Some(given), stale(need.output * unit)),
            Some(len) => (None, self.before(rank, given, len * unit)),
        };
        let right = self.right(rank, in_place.is_some());
        Act { op, dtype: self.shape.dtype, factor, input, output, right }
    }

    fn op(&self, rank: usize) -> Op {
        let (count, reduce, root) = (self.counts[0], self.shape.reduce, self.root);
        let counts = |counts: &[usize]| match self.shape.is_even {
            true => Counts::Even(counts[0]),
            false => Counts::uneven(counts),
        };
        let parts = counts(&self.counts);
        match self.shape.kind {
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
            return numbers::encode(self.shape.dtype, &self.numbers(rank));
        }
        let need = self.op(rank).need(rank, self.size());
        bytes(self.stem_of(rank), need.input * self.shape.dtype.byte_len())
    }

    /// What is in the one buffer of an operation in place before: what the rank gives, where it belongs.
    fn before(&self, rank: usize, given: Vec<u8>, byte_len: usize) -> Vec<u8> {
        match self.shape.kind {
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
        let unit = self.shape.dtype.byte_len();
        match self.shape.kind {
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
        let unit = self.shape.dtype.byte_len();
        let start = self.counts[..rank].iter().sum::<usize>() * unit;
        start..start + self.counts[rank] * unit
    }

    /// The reduction of these elements of all ranks.
    fn joined(&self, places: Range<usize>) -> Vec<u8> {
        let inputs: Vec<Vec<Number>> = (0..self.size()).map(|rank| self.numbers(rank)).collect();
        numbers::encode(self.shape.dtype, &numbers::joined(self.shape.reduce, &inputs, places))
    }

    /// What a rank gives to a reduction.
    fn numbers(&self, rank: usize) -> Vec<Number> {
        let count = self.op(rank).need(rank, self.size()).input;
        let stem = self.stem_of(rank);
        (0..count as u64).map(|at| numbers::pick(self.shape.dtype, hash(stem ^ at))).collect()
    }

    fn stem_of(&self, rank: usize) -> u64 {
        hash(self.stem ^ rank as u64)
    }

    fn size(&self) -> usize {
        self.counts.len()
    }

    fn reduces(&self) -> bool {
        REDUCTIONS.contains(&self.shape.kind)
    }
}

/// Operations of all ranks.
fn kinds() -> impl Iterator<Item = OpKind> {
    OpKind::ALL.into_iter().filter(|kind| !kind.is_message())
}

/// The element type with each reduction that an operation may have on it; one that does nothing where it has none.
fn reductions(kind: OpKind, dtype: DType) -> Vec<(DType, ReduceOp)> {
    if !REDUCTIONS.contains(&kind) {
        return vec![(dtype, ReduceOp::Sum)];
    }
    let supported = ReduceOp::ALL.into_iter().filter(|reduce| reduce.supports(dtype).is_ok());
    supported.map(|reduce| (dtype, reduce)).collect()
}

/// Operations whose buffers have a part for each rank.
const SLICED: [OpKind; 5] =
    [OpKind::AllGather, OpKind::ReduceScatter, OpKind::AllToAll, OpKind::Gather, OpKind::Scatter];
/// Operations that have a form in place.
const IN_PLACE: [OpKind; 5] =
    [OpKind::AllReduce, OpKind::Reduce, OpKind::Broadcast, OpKind::AllGather, OpKind::ReduceScatter];
const REDUCTIONS: [OpKind; 3] = [OpKind::AllReduce, OpKind::Reduce, OpKind::ReduceScatter];
