//! Every operand at hand: accumulated wide and rounded once.

use bytemuck::Pod;
use pulp::Arch;

use super::fault::{check_length, check_whole};
use super::isa::{Isa, run_on};
use super::lane::Lane;
use super::loops;
use super::resolve::{Job, resolve};
use super::{ReduceError, ReduceOp};
use crate::DType;

/// Combines `parts`, from the first to the last, into `into`, whose old content does not matter.
///
/// 16-bit floats accumulate as `f32` and are rounded once; an average is divided here. Of one part the result is that
/// part, with its NaNs canonical and its flags 0 or 1.
///
/// All slices hold whole elements of `dtype`, equally many, at any address.
///
/// # Errors
///
/// [`ReduceError`] where they do not, without parts, and where the reduction is [not defined](ReduceOp::supports). Nothing is written then.
pub fn combine(reduce: ReduceOp, dtype: DType, into: &mut [u8], parts: &[&[u8]]) -> Result<(), ReduceError> {
    combine_on(Arch::new(), reduce, dtype, into, Operands { parts, own: None })
}

/// [`combine`] where `into` is itself an operand: its old content is the one at `position`, among the `others` in order.
///
/// # Errors
///
/// As [`combine`], and for a `position` behind the last operand.
pub fn combine_in_place(
    reduce: ReduceOp,
    dtype: DType,
    into: &mut [u8],
    position: usize,
    others: &[&[u8]],
) -> Result<(), ReduceError> {
    let operands = Operands { parts: others, own: Some(position) };
    if position >= operands.count() {
        return Err(ReduceError::Position { position, operands: operands.count() });
    }
    combine_on(Arch::new(), reduce, dtype, into, operands)
}

/// [`combine`] compiled for `arch`.
pub(super) fn combine_on(
    arch: Arch,
    reduce: ReduceOp,
    dtype: DType,
    into: &mut [u8],
    operands: Operands<'_>,
) -> Result<(), ReduceError> {
    reduce.supports(dtype)?;
    check_whole(dtype, into)?;
    operands.parts.iter().try_for_each(|part| check_length(into.len(), part))?;
    if operands.count() == 0 {
        return Err(ReduceError::Empty);
    }
    Ok(resolve(reduce, dtype, Combine { arch, into, operands })?)
}

/// The operands in order; where `own` is set, the one at that position is the destination's old content.
#[derive(Clone, Copy)]
pub(super) struct Operands<'a> {
    pub(super) parts: &'a [&'a [u8]],
    pub(super) own: Option<usize>,
}

impl<'a> Operands<'a> {
    fn count(self) -> usize {
        self.parts.len() + usize::from(self.own.is_some())
    }

    /// The part that is operand `index`, or none where that is the destination.
    #[inline(always)]
    fn part(self, index: usize) -> Option<&'a [u8]> {
        match self.own {
            Some(own) if index == own => None,
            Some(own) if index > own => Some(self.parts[index - 1]),
            _ => Some(self.parts[index]),
        }
    }
}

struct Combine<'a> {
    arch: Arch,
    into: &'a mut [u8],
    operands: Operands<'a>,
}

impl Job for Combine<'_> {
    fn run<L, W>(self, join: impl Fn(W, W) -> W + Copy, settle: impl Fn(W, usize) -> W + Copy)
    where
        L: Lane<W>,
        W: Pod,
    {
        run_on(
            self.arch,
            #[inline(always)]
            |isa: Isa| combine_blocks::<L, W>(isa, self.into, self.operands, join, settle),
        );
    }
}

/// Bytes of a block's accumulators, few enough to stay in the nearest cache together with what they are made from.
const BLOCK: usize = 1024;

#[inline(always)]
fn combine_blocks<L: Lane<W>, W: Pod>(
    isa: Isa,
    into: &mut [u8],
    operands: Operands<'_>,
    join: impl Fn(W, W) -> W + Copy,
    settle: impl Fn(W, usize) -> W + Copy,
) {
    let count = operands.count();
    let settle = move |total| settle(total, count);
    match count {
        1 | 2 => combine_few::<L, W>(isa, into, operands, join, settle),
        _ => combine_many::<L, W>(isa, into, operands, join, settle),
    }
}

/// One or two operands need no accumulators: the result is made where it belongs.
#[inline(always)]
fn combine_few<L: Lane<W>, W: Pod>(
    isa: Isa,
    into: &mut [u8],
    operands: Operands<'_>,
    join: impl Fn(W, W) -> W,
    settle: impl Fn(W) -> W,
) {
    let (first, others) = match operands.own {
        Some(_) => (None, operands.parts),
        None => (operands.parts.first(), &operands.parts[1..]),
    };
    let joined = |a, b| settle(join(a, b));
    match (first, others.first()) {
        (Some(first), Some(other)) => loops::join_into::<L, W>(isa, into, (first, other), joined),
        (None, Some(other)) => loops::fold_all::<L, W>(isa, into, other, joined),
        (None, None) => loops::map_all::<L, W>(isa, into, settle),
        (Some(first), None) => {
            for (block, first) in into.chunks_mut(BLOCK).zip(first.chunks(BLOCK)) {
                block.copy_from_slice(first);
                loops::map_all::<L, W>(isa, block, &settle);
            }
        }
    }
}

#[inline(always)]
fn combine_many<L: Lane<W>, W: Pod>(
    isa: Isa,
    into: &mut [u8],
    operands: Operands<'_>,
    join: impl Fn(W, W) -> W + Copy,
    settle: impl Fn(W) -> W,
) {
    let mut memory = [0u128; BLOCK / size_of::<u128>()];
    let totals: &mut [W] = bytemuck::cast_slice_mut(&mut memory);
    let stride = totals.len() * size_of::<L>();
    for (index, block) in into.chunks_mut(stride).enumerate() {
        let span = index * stride..index * stride + block.len();
        let totals = &mut totals[..block.len() / size_of::<L>()];
        let operand = |index| operands.part(index).map_or(&*block, |part| &part[span.clone()]);
        loops::join_two::<L, W>(isa, totals, operand(0), operand(1), join);
        for index in 2..operands.count() {
            loops::join_all::<L, W>(isa, totals, operand(index), join);
        }
        loops::narrow_all::<L, W>(isa, block, totals, &settle);
    }
}
