//! Two operands joined into memory that is too long to stay in the caches.
//!
//! What is written there is read first, for nothing, and drives out what the caches hold. See `phalanx_mem::fill_past_caches`.

use bytemuck::Pod;
use phalanx_mem::fill_past_caches;
use pulp::Arch;

use super::beside::Beside;
use super::fault::{check_length, check_whole};
use super::isa::{Isa, run_on};
use super::lane::Lane;
use super::loops;
use super::resolve::{Job, resolve};
use super::{ReduceError, ReduceOp};
use crate::DType;

/// Combines two operands as [`combine`](super::combine) does, past the caches, and copies something else meanwhile.
pub(crate) fn combine_past_caches(
    reduce: ReduceOp,
    dtype: DType,
    into: &mut [u8],
    operands: [&[u8]; 2],
    mut beside: Beside<'_>,
) -> Result<(), ReduceError> {
    check_whole(dtype, into)?;
    operands.iter().try_for_each(|operand| check_length(into.len(), operand))?;
    resolve(reduce, dtype, CombinePast { into, operands, beside: &mut beside })?;
    beside.copy_rest();
    Ok(())
}

/// The operands are as long as the result.
struct CombinePast<'a, 'b> {
    into: &'a mut [u8],
    operands: [&'a [u8]; 2],
    beside: &'a mut Beside<'b>,
}

impl Job for CombinePast<'_, '_> {
    fn run<L, W>(self, join: impl Fn(W, W) -> W + Copy, settle: impl Fn(W, usize) -> W + Copy)
    where
        L: Lane<W>,
        W: Pod,
    {
        let CombinePast { into, operands: [first, second], beside } = self;
        let joined = |a, b| settle(join(a, b), 2);
        run_on(
            Arch::new(),
            #[inline(always)]
            |isa: Isa| {
                fill_past_caches(
                    into,
                    size_of::<L>(),
                    #[inline(always)]
                    |range, block| {
                        beside.copy_next(range.len());
                        loops::join_into::<L, W>(isa, block, (&first[range.clone()], &second[range]), joined);
                    },
                );
            },
        );
    }
}
