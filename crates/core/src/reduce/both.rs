//! Two operands that both become what they join to: this rank's memory and another's.

use bytemuck::Pod;
use pulp::Arch;

use super::fault::{check_length, check_whole};
use super::isa::{Isa, run_on};
use super::lane::Lane;
use super::loops;
use super::resolve::{Job, resolve};
use super::{ReduceError, ReduceOp};
use crate::DType;

/// Combines two operands as [`combine`](super::combine) does, and leaves the result in the place of both.
pub(crate) fn combine_both(
    reduce: ReduceOp,
    dtype: DType,
    ours: &mut [u8],
    theirs: &mut [u8],
) -> Result<(), ReduceError> {
    check_whole(dtype, ours)?;
    check_length(ours.len(), theirs)?;
    Ok(resolve(reduce, dtype, CombineBoth { ours, theirs })?)
}

/// Both slices are equally long.
struct CombineBoth<'a> {
    ours: &'a mut [u8],
    theirs: &'a mut [u8],
}

impl Job for CombineBoth<'_> {
    fn run<L, W>(self, join: impl Fn(W, W) -> W + Copy, settle: impl Fn(W, usize) -> W + Copy)
    where
        L: Lane<W>,
        W: Pod,
    {
        let CombineBoth { ours, theirs } = self;
        let joined = |a, b| settle(join(a, b), 2);
        run_on(
            Arch::new(),
            #[inline(always)]
            |isa: Isa| loops::join_both::<L, W>(isa, ours, theirs, joined),
        );
    }
}
