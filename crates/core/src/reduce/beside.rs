//! Two operands joined beside a copy, block by block.
//!
//! A processor stores slowly to lines that another has read since, and loads slowly what another has written. In turn, the one
//! is waited for while the other is done.

use std::ops::Range;

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

/// Combines two operands as [`combine`](super::combine) does, the first of which is in `into` already if it is none, and copies
/// something else meanwhile.
pub(crate) fn combine_beside(
    reduce: ReduceOp,
    dtype: DType,
    into: &mut [u8],
    (first, second): (Option<&[u8]>, &[u8]),
    beside: Beside<'_>,
) -> Result<(), ReduceError> {
    check_whole(dtype, into)?;
    first.iter().chain([&second]).try_for_each(|operand| check_length(into.len(), operand))?;
    Ok(resolve(reduce, dtype, CombineBeside { arch: Arch::new(), into, first, second, beside })?)
}

struct CombineBeside<'a> {
    arch: Arch,
    into: &'a mut [u8],
    first: Option<&'a [u8]>,
    second: &'a [u8],
    beside: Beside<'a>,
}

impl Job for CombineBeside<'_> {
    fn run<L, W>(mut self, join: impl Fn(W, W) -> W + Copy, settle: impl Fn(W, usize) -> W + Copy)
    where
        L: Lane<W>,
        W: Pod,
    {
        let joined = |a, b| settle(join(a, b), 2);
        let byte_len = self.into.len();
        for (index, block) in self.into.chunks_mut(BLOCK).enumerate() {
            let range = index * BLOCK..index * BLOCK + block.len();
            self.beside.copy(range.clone());
            if let Some(first) = self.first {
                block.copy_from_slice(&first[range.clone()]);
            }
            let second = &self.second[range];
            run_on(
                self.arch,
                #[inline(always)]
                |isa: Isa| loops::fold_all::<L, W>(isa, block, second, joined),
            );
        }
        self.beside.copy(byte_len..usize::MAX);
    }
}

impl Beside<'_> {
    /// Copies what there is of the range, and has the processor fetch the room for the next block.
    fn copy(&mut self, range: Range<usize>) {
        let len = self.from.len();
        let (start, end) = (range.start.min(len), range.end.min(len));
        self.room[start..end].copy_from_slice(&self.from[start..end]);
        expect_writes(&mut self.room[end..len.min(end + BLOCK)]);
    }
}

/// Bytes of a block: enough that both are under way together, and few enough that neither waits for the other.
const BLOCK: usize = 1024;
