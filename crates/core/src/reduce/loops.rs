//! The loops that kernels are made of, in groups where the lane has them, then element by element.
//!
//! Slices of one call hold equally many elements. Everything is inlined into the kernel, whose instruction set it takes.

use std::hint::black_box;

use bytemuck::Pod;

use super::group::{Group, LANES};
use super::isa::Isa;
use super::lane::{Lane, elements, load, store};

/// Joins every incoming element into its place.
#[inline(always)]
pub(super) fn fold_all<L: Lane<W>, W: Copy>(isa: Isa, bytes: &mut [u8], incoming: &[u8], join: impl Fn(W, W) -> W) {
    let Some(group) = L::Group::on(isa) else {
        return fold_each::<L, W>(bytes, incoming, join);
    };
    let (places, bytes) = groups_mut(bytes);
    let (groups, incoming) = groups(incoming);
    for (place, incoming) in places.iter_mut().zip(groups) {
        let (a, b) = (group.widen(place), group.widen(incoming));
        *place = group.narrow(join_lanes(a, b, &join));
    }
    fold_each::<L, W>(bytes, incoming, join);
}

/// Joins two operands in another place: at once where there are groups, else block by block there.
#[inline(always)]
pub(super) fn join_into<L: Lane<W>, W: Copy>(
    isa: Isa,
    into: &mut [u8],
    (left, right): (&[u8], &[u8]),
    join: impl Fn(W, W) -> W,
) {
    let Some(group) = L::Group::on(isa) else {
        return join_into_blocks::<L, W>(into, (left, right), join);
    };
    let ((places, into), (lefts, left), (rights, right)) = (groups_mut(into), groups(left), groups(right));
    for ((place, left), right) in places.iter_mut().zip(lefts).zip(rights) {
        let (a, b) = (group.widen(left), group.widen(right));
        *place = group.narrow(join_lanes(a, b, &join));
    }
    join_into_blocks::<L, W>(into, (left, right), join);
}

/// Joins two operands in the places of both: at once where there are groups, else block by block, because of a loop that stores to both
/// the compiler makes no vectors.
#[inline(always)]
pub(super) fn join_both<L: Lane<W>, W: Copy>(isa: Isa, left: &mut [u8], right: &mut [u8], join: impl Fn(W, W) -> W) {
    let Some(group) = L::Group::on(isa) else {
        return join_both_blocks::<L, W>(left, right, join);
    };
    let ((lefts, left), (rights, right)) = (groups_mut(left), groups_mut(right));
    for (left, right) in lefts.iter_mut().zip(rights) {
        let (a, b) = (group.widen(left), group.widen(right));
        *left = group.narrow(join_lanes(a, b, &join));
        *right = *left;
    }
    join_both_blocks::<L, W>(left, right, join);
}

/// Changes every element.
#[inline(always)]
pub(super) fn map_all<L: Lane<W>, W: Copy>(isa: Isa, bytes: &mut [u8], change: impl Fn(W) -> W) {
    let Some(group) = L::Group::on(isa) else {
        return map_each::<L, W>(bytes, change);
    };
    let (places, bytes) = groups_mut(bytes);
    for place in places {
        *place = group.narrow(each_lane(group.widen(place), &change));
    }
    map_each::<L, W>(bytes, change);
}

/// Joins the elements of two operands into totals.
#[inline(always)]
pub(super) fn join_two<L: Lane<W>, W: Copy>(
    isa: Isa,
    totals: &mut [W],
    left: &[u8],
    right: &[u8],
    join: impl Fn(W, W) -> W,
) {
    let Some(group) = L::Group::on(isa) else {
        return join_two_each::<L, W>(totals, left, right, join);
    };
    let (whole, totals) = totals.as_chunks_mut::<LANES>();
    let ((lefts, left), (rights, right)) = (groups(left), groups(right));
    for ((total, left), right) in whole.iter_mut().zip(lefts).zip(rights) {
        let (a, b) = (group.widen(left), group.widen(right));
        *total = join_lanes(a, b, &join);
    }
    join_two_each::<L, W>(totals, left, right, join);
}

/// Joins the elements of one more operand into totals.
#[inline(always)]
pub(super) fn join_all<L: Lane<W>, W: Copy>(isa: Isa, totals: &mut [W], operand: &[u8], join: impl Fn(W, W) -> W) {
    let Some(group) = L::Group::on(isa) else {
        return join_each::<L, W>(totals, operand, join);
    };
    let (whole, totals) = totals.as_chunks_mut::<LANES>();
    let (groups, operand) = groups(operand);
    for (total, operand) in whole.iter_mut().zip(groups) {
        let wide = group.widen(operand);
        *total = join_lanes(*total, wide, &join);
    }
    join_each::<L, W>(totals, operand, join);
}

/// Settles and narrows every total.
#[inline(always)]
pub(super) fn narrow_all<L: Lane<W>, W: Copy>(isa: Isa, bytes: &mut [u8], totals: &[W], settle: impl Fn(W) -> W) {
    let Some(group) = L::Group::on(isa) else {
        return narrow_each::<L, W>(bytes, totals, settle);
    };
    let (places, bytes) = groups_mut(bytes);
    let (whole, totals) = totals.as_chunks::<LANES>();
    for (place, total) in places.iter_mut().zip(whole) {
        *place = group.narrow(each_lane(*total, &settle));
    }
    narrow_each::<L, W>(bytes, totals, settle);
}

/// The whole groups, and the bytes behind them.
#[inline(always)]
fn groups<B: Pod>(bytes: &[u8]) -> (&[B], &[u8]) {
    let (whole, rest) = bytes.split_at(bytes.len() / size_of::<B>() * size_of::<B>());
    (bytemuck::cast_slice(whole), rest)
}

#[inline(always)]
fn groups_mut<B: Pod>(bytes: &mut [u8]) -> (&mut [B], &mut [u8]) {
    let (whole, rest) = bytes.split_at_mut(bytes.len() / size_of::<B>() * size_of::<B>());
    (bytemuck::cast_slice_mut(whole), rest)
}

/// Joins lane by lane.
#[inline(always)]
fn join_lanes<W: Copy>(mut left: [W; LANES], right: [W; LANES], join: impl Fn(W, W) -> W) -> [W; LANES] {
    for (left, right) in left.iter_mut().zip(right) {
        *left = join(*left, right);
    }
    left
}

/// Changes lane by lane. An array's own `map` would not be inlined.
#[inline(always)]
fn each_lane<W: Copy>(mut wide: [W; LANES], change: impl Fn(W) -> W) -> [W; LANES] {
    for lane in &mut wide {
        *lane = change(*lane);
    }
    wide
}

#[inline(always)]
fn fold_each<L: Lane<W>, W: Copy>(bytes: &mut [u8], incoming: &[u8], join: impl Fn(W, W) -> W) {
    for (place, element) in bytes.chunks_exact_mut(size_of::<L>()).zip(elements::<L>(incoming)) {
        store(place, L::narrow(join(load::<L>(place).widen(), element.widen())));
    }
}

#[inline(always)]
fn join_into_blocks<L: Lane<W>, W: Copy>(into: &mut [u8], (left, right): (&[u8], &[u8]), join: impl Fn(W, W) -> W) {
    let block_len = black_box(BLOCK);
    for ((into, left), right) in into.chunks_mut(block_len).zip(left.chunks(block_len)).zip(right.chunks(block_len)) {
        into.copy_from_slice(left);
        fold_each::<L, W>(into, right, &join);
    }
}

#[inline(always)]
fn join_both_blocks<L: Lane<W>, W: Copy>(left: &mut [u8], right: &mut [u8], join: impl Fn(W, W) -> W) {
    // Unknown to the compiler, which would unroll the loop over a block in full.
    let block_len = black_box(BLOCK);
    for (left, right) in left.chunks_mut(block_len).zip(right.chunks_mut(block_len)) {
        fold_each::<L, W>(left, right, &join);
        right.copy_from_slice(left);
    }
}

#[inline(always)]
fn map_each<L: Lane<W>, W: Copy>(bytes: &mut [u8], change: impl Fn(W) -> W) {
    for place in bytes.chunks_exact_mut(size_of::<L>()) {
        store(place, L::narrow(change(load::<L>(place).widen())));
    }
}

#[inline(always)]
fn join_two_each<L: Lane<W>, W: Copy>(totals: &mut [W], left: &[u8], right: &[u8], join: impl Fn(W, W) -> W) {
    for ((total, left), right) in totals.iter_mut().zip(elements::<L>(left)).zip(elements::<L>(right)) {
        *total = join(left.widen(), right.widen());
    }
}

#[inline(always)]
fn join_each<L: Lane<W>, W: Copy>(totals: &mut [W], operand: &[u8], join: impl Fn(W, W) -> W) {
    for (total, element) in totals.iter_mut().zip(elements::<L>(operand)) {
        *total = join(*total, element.widen());
    }
}

#[inline(always)]
fn narrow_each<L: Lane<W>, W: Copy>(bytes: &mut [u8], totals: &[W], settle: impl Fn(W) -> W) {
    for (place, total) in bytes.chunks_exact_mut(size_of::<L>()).zip(totals) {
        store(place, L::narrow(settle(*total)));
    }
}

/// Bytes of a block: few enough that the stores of one wait for their lines while the next one is loaded.
const BLOCK: usize = 1024;
