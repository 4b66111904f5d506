//! What each operation means, said as plainly as possible: the bytes that a rank must hold when its call returns.

use std::cell::OnceCell;

use phalanx_core::{Counts, Op, ReduceOp};

use crate::join::join;
use crate::scene::{Act, Call, before};

/// What a rank's output must be.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    /// These bytes.
    Bytes(Vec<u8>),
    /// What it was before.
    Untouched,
    /// There is no right answer, because the ranks called different things: only an error will do.
    Undefined,
}

/// All answers of one act.
pub(crate) struct Oracle<'a> {
    act: &'a Act,
    inputs: &'a [Vec<u8>],
    /// The reduction of all inputs, once somebody asked; all ranks share it where all agree.
    joined: OnceCell<Option<Vec<u8>>>,
}

impl<'a> Oracle<'a> {
    pub(crate) fn new(act: &'a Act, inputs: &'a [Vec<u8>]) -> Oracle<'a> {
        Oracle { act, inputs, joined: OnceCell::new() }
    }

    /// The answer that `rank` must get for what it called.
    pub(crate) fn answer(&self, rank: usize) -> Answer {
        let call = &self.act.calls[rank];
        let unit = call.dtype.byte_len();
        let bytes = match &call.op {
            Op::AllReduce { .. } => self.joined(call, rank),
            Op::Reduce { root, .. } if *root == rank => self.joined(call, rank),
            Op::ReduceScatter { counts, .. } => self.joined(call, rank).map(|all| cut(&all, counts, rank, unit)),
            Op::Broadcast { count, root } => self.input(call, *root, count * unit).map(<[u8]>::to_vec),
            Op::AllGather { counts } => self.gathered(call, counts),
            Op::Gather { counts, root } if *root == rank => self.gathered(call, counts),
            Op::Scatter { counts, root } => {
                self.input(call, *root, counts.total(self.inputs.len()) * unit).map(|all| cut(all, counts, rank, unit))
            }
            Op::AllToAll { take, .. } => self.taken(take, rank, unit),
            _ => return Answer::Untouched,
        };
        match bytes {
            Some(bytes) => Answer::Bytes(bytes),
            // Whoever is to get nothing cannot get it wrong.
            None if call.op.need(rank, self.inputs.len()).output == 0 => Answer::Bytes(vec![]),
            None => Answer::Undefined,
        }
    }

    fn joined(&self, call: &Call, rank: usize) -> Option<Vec<u8>> {
        match self.act.odd {
            None => self.joined.get_or_init(|| self.reduction(call, rank)).clone(),
            Some(_) => self.reduction(call, rank),
        }
    }

    fn reduction(&self, call: &Call, rank: usize) -> Option<Vec<u8>> {
        let len = self.inputs[rank].len();
        let inputs: Option<Vec<&[u8]>> = (0..self.inputs.len()).map(|other| self.input(call, other, len)).collect();
        let reduce = call.op.reduce().unwrap_or(ReduceOp::Sum);
        let factors: Vec<_> = self.act.calls.iter().map(|call| call.factor).collect();
        Some(join(call.dtype, reduce, &inputs?, &factors))
    }

    /// What a rank gave to this call, if it called the same and gave as much as expected. Of whom nothing is expected,
    /// nothing can be wrong.
    fn input(&self, call: &Call, rank: usize, byte_len: usize) -> Option<&[u8]> {
        let kind = |call: &Call| (call.op.kind(), call.op.reduce(), call.dtype);
        let agrees = kind(call) == kind(&self.act.calls[rank]);
        match byte_len {
            0 => Some(&[]),
            _ => Some(&*self.inputs[rank]).filter(|input| agrees && input.len() == byte_len),
        }
    }

    fn gathered(&self, call: &Call, counts: &Counts) -> Option<Vec<u8>> {
        let unit = call.dtype.byte_len();
        let parts: Option<Vec<&[u8]>> =
            (0..self.inputs.len()).map(|rank| self.input(call, rank, counts.of(rank) * unit)).collect();
        Some(parts?.concat())
    }

    fn taken(&self, take: &Counts, rank: usize, unit: usize) -> Option<Vec<u8>> {
        let mut all = vec![];
        let givers = self.act.calls.iter().enumerate();
        for (from, call) in givers.filter(|(from, _)| take.of(*from) > 0) {
            let Op::AllToAll { give, .. } = &call.op else {
                return None;
            };
            if give.of(rank) != take.of(from) || call.dtype.byte_len() != unit {
                return None;
            }
            all.extend(cut(&self.inputs[from], give, rank, unit));
        }
        Some(all)
    }
}

/// A rank's slice.
fn cut(all: &[u8], counts: &Counts, rank: usize, unit: usize) -> Vec<u8> {
    all[before(counts, rank) * unit..][..counts.of(rank) * unit].to_vec()
}
