//! Two operands joined beside a copy, block by block.
//!
//! A processor stores slowly to lines that another has read since, and loads slowly what another has written. In turn, the one
//! is waited for while the other is done.

use std::hint::black_box;

use bytemuck::Pod;
use phalanx_mem::expect_writes;
use pulp::Arch;

use super::fault::{check_length, check_whole};
use super::isa::{Isa, run_on};
use super::lane::Lane;
use super::loops;
use super::resolve::{Job, resolve};
use super::{ReduceError, ReduceOp};
use crate::DType;

/// What is copied, and the room for it, which is as long.
pub(crate) struct Beside<'a> {
    pub(crate) from: &'a [u8],
    pub(crate) room: &'a mut [u8],
}

impl Beside<'_> {
    pub(crate) fn nothing() -> Beside<'static> {
        Beside { from: &[], room: &mut [] }
    }

    /// Copies so many of the next bytes, if they are left, and has the lines of later ones fetched.
    #[inline(always)]
    pub(super) fn copy_next(&mut self, byte_len: usize) {
        let (now, later) = self.from.split_at(self.from.len().min(byte_len));
        let (here, next) = std::mem::take(&mut self.room).split_at_mut(now.len());
        here.copy_from_slice(now);
        let soon = next.len().min(BLOCK);
        expect_writes(&mut next[soon.saturating_sub(now.len())..soon]);
        (self.from, self.room) = (later, next);
    }

    /// Copies what is left.
    pub(super) fn copy_rest(self) {
        self.room.copy_from_slice(self.from);
    }
}

/// Combines two operands as [`combine`](super::combine) does, the first of which is in `into` already if it is none, and copies
/// something else meanwhile.
pub(crate) fn combine_beside(
    reduce: ReduceOp,
    dtype: DType,
    into: &mut [u8],
    (first, second): (Option<&[u8]>, &[u8]),
    mut beside: Beside<'_>,
) -> Result<(), ReduceError> {
    check_whole(dtype, into)?;
    first.iter().chain([&second]).try_for_each(|operand| check_length(into.len(), operand))?;
    resolve(reduce, dtype, CombineBeside { into, first, second, beside: &mut beside })?;
    beside.copy_rest();
    Ok(())
}

/// The operands are as long as the result.
struct CombineBeside<'a, 'b> {
    into: &'a mut [u8],
    first: Option<&'a [u8]>,
    second: &'a [u8],
    beside: &'a mut Beside<'b>,
}

impl Job for CombineBeside<'_, '_> {
    fn run<L, W>(self, join: impl Fn(W, W) -> W + Copy, settle: impl Fn(W, usize) -> W + Copy)
    where
        L: Lane<W>,
        W: Pod,
    {
        let CombineBeside { into, first, second, beside } = self;
        let joined = |a, b| settle(join(a, b), 2);
        // Unknown to the compiler, which would unroll the loop over a block in full: prefetchers know a row of accesses by the
        // instruction that makes them. The loop is the kernel's, so that nothing is done in another instruction set between blocks.
        let block_len = black_box(BLOCK);
        let mut firsts = first.unwrap_or_default().chunks(block_len);
        run_on(
            Arch::new(),
            #[inline(always)]
            |isa: Isa| {
                for (block, second) in into.chunks_mut(block_len).zip(second.chunks(block_len)) {
                    beside.copy_next(block.len());
                    match firsts.next() {
                        Some(first) => loops::join_into::<L, W>(isa, block, (first, second), joined),
                        None => loops::fold_all::<L, W>(isa, block, second, joined),
                    }
                }
            },
        );
    }
}

/// Bytes of a block: enough that both are under way together, and few enough that neither waits for the other.
const BLOCK: usize = 1024;
