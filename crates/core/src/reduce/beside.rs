//! Two operands joined beside a copy, block by block.
//!
//! A processor stores slowly to lines that another has read since, and loads slowly what another has written. In turn, the one
//! is waited for while the other is done.

use std::hint::black_box;

use bytemuck::Pod;
use phalanx_mem::expect_writes;
use pulp::Arch;

use super::combine::{combine, combine_in_place};
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
    // Beside each other as far as both go, in whole elements; then what is left of either.
    let common = into.len().min(beside.from.len()) / dtype.byte_len() * dtype.byte_len();
    let (into, into_rest) = into.split_at_mut(common);
    let (first, first_rest) = first.map(|first| first.split_at(common)).unzip();
    let (second, second_rest) = second.split_at(common);
    let (from, from_rest) = beside.from.split_at(common);
    let (room, room_rest) = beside.room.split_at_mut(common);
    resolve(reduce, dtype, CombineBeside { into, first, second, from, room })?;
    room_rest.copy_from_slice(from_rest);
    match first_rest {
        None => combine_in_place(reduce, dtype, into_rest, 0, &[second_rest]),
        Some(first) => combine(reduce, dtype, into_rest, &[first, second_rest]),
    }
}

/// All slices are equally long.
struct CombineBeside<'a> {
    into: &'a mut [u8],
    first: Option<&'a [u8]>,
    second: &'a [u8],
    from: &'a [u8],
    room: &'a mut [u8],
}

impl Job for CombineBeside<'_> {
    fn run<L, W>(self, join: impl Fn(W, W) -> W + Copy, settle: impl Fn(W, usize) -> W + Copy)
    where
        L: Lane<W>,
        W: Pod,
    {
        let CombineBeside { into, first, second, from, mut room } = self;
        let joined = |a, b| settle(join(a, b), 2);
        // Unknown to the compiler, which would unroll the loop over a block in full: prefetchers know a row of accesses by the
        // instruction that makes them. The loop is the kernel's, so that nothing is done in another instruction set between blocks.
        let block_len = black_box(BLOCK);
        let mut firsts = first.unwrap_or_default().chunks(block_len);
        run_on(
            Arch::new(),
            #[inline(always)]
            |isa: Isa| {
                let blocks = into.chunks_mut(block_len).zip(second.chunks(block_len)).zip(from.chunks(block_len));
                for ((block, second), from) in blocks {
                    let (here, later) = room.split_at_mut(from.len());
                    here.copy_from_slice(from);
                    let next = later.len().min(block_len);
                    expect_writes(&mut later[..next]);
                    room = later;
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
