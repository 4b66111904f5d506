//! Two operands joined into memory that is too long to stay in the caches.
//!
//! What is written there is read first, for nothing, and drives out what the caches hold. See `phalanx_mem::fill_past_caches`.

use bytemuck::Pod;
use phalanx_mem::{expect_writes, fill_past_caches};
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
    beside: Beside<'_>,
) -> Result<(), ReduceError> {
    check_whole(dtype, into)?;
    operands.iter().try_for_each(|operand| check_length(into.len(), operand))?;
    let common = into.len().min(beside.from.len());
    let (from, from_rest) = beside.from.split_at(common);
    let (room, room_rest) = beside.room.split_at_mut(common);
    resolve(reduce, dtype, CombinePast { into, operands, from, room })?;
    room_rest.copy_from_slice(from_rest);
    Ok(())
}

/// Operands are as long as the result, and what is copied is at most as long.
struct CombinePast<'a> {
    into: &'a mut [u8],
    operands: [&'a [u8]; 2],
    from: &'a [u8],
    room: &'a mut [u8],
}

impl Job for CombinePast<'_> {
    fn run<L, W>(self, join: impl Fn(W, W) -> W + Copy, settle: impl Fn(W, usize) -> W + Copy)
    where
        L: Lane<W>,
        W: Pod,
    {
        let CombinePast { into, operands: [first, second], mut from, mut room } = self;
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
                        let (now, later) = from.split_at(from.len().min(range.len()));
                        let (here, next) = std::mem::take(&mut room).split_at_mut(now.len());
                        here.copy_from_slice(now);
                        let soon = next.len().min(AHEAD);
                        expect_writes(&mut next[soon.saturating_sub(now.len())..soon]);
                        (from, room) = (later, next);
                        loops::join_into::<L, W>(isa, block, (&first[range.clone()], &second[range]), joined);
                    },
                );
            },
        );
    }
}

/// How far before the copy the lines that it writes are fetched.
const AHEAD: usize = 1024;
