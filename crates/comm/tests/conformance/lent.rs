//! Buffers that the group has made: read by peers where they are, or not, mixed with others, and written anew as soon as an
//! operation has ended.

use phalanx_core::{Group, ReduceOp};
use phalanx_mem::Buffer;

use crate::setting::{Setting, WORLDS};

pub(crate) fn buffers_of_the_group(setting: &Setting) {
    for size in WORLDS {
        setting.run(size, |group| {
            let mut plan = fastrand::Rng::with_seed(size as u64);
            let mut own = fastrand::Rng::with_seed(group.rank() as u64 + 100);
            for round in 0..ROUNDS {
                let share = [0, 1, 100, 5_000, 40_000][plan.usize(..5)] + plan.usize(..3);
                // Of all ranks, of none, or as each likes.
                let place = [Some(true), Some(false), None][plan.usize(..3)];
                let mut buffer = |len| memory(group, place.unwrap_or_else(|| own.bool()), len);
                let (mut part, mut whole) = (buffer(share), buffer(share * size));
                match plan.u8(..5) {
                    0 => all_reduce(group, &mut whole, round),
                    1 => reduce_scatter(group, &mut whole, &mut part, round),
                    2 => all_gather(group, &mut part, &mut whole, round),
                    3 => all_to_all(group, &mut whole, &mut buffer(share * size), round),
                    _ => broadcast(group, &mut whole, round),
                }
                // Nobody may still read what this rank writes from here on.
                [&mut part, &mut whole].into_iter().for_each(|buffer| buffer.as_bytes_mut().fill(0xEE));
            }
        });
    }
}

fn all_reduce(group: &Group, data: &mut Buffer, round: usize) {
    fill(data, group.rank(), round);
    group.all_reduce(elements(data), ReduceOp::Sum).expect("a world");
    let expected = |at| (0..group.size()).map(|rank| value(rank, round, at)).fold(0, i32::wrapping_add);
    check(data, expected);
}

fn reduce_scatter(group: &Group, data: &mut Buffer, part: &mut Buffer, round: usize) {
    fill(data, group.rank(), round);
    let start = group.rank() * part.byte_len() / UNIT;
    group.reduce_scatter(elements(data), elements(part), ReduceOp::Sum).expect("a world");
    let sum = |at| (0..group.size()).map(|rank| value(rank, round, start + at)).fold(0, i32::wrapping_add);
    check(part, sum);
}

fn all_gather(group: &Group, part: &mut Buffer, data: &mut Buffer, round: usize) {
    fill(part, group.rank(), round);
    group.all_gather(elements(part), elements(data)).expect("a world");
    let share = part.byte_len() / UNIT;
    check(data, |at| value(at / share, round, at % share));
}

fn all_to_all(group: &Group, give: &mut Buffer, take: &mut Buffer, round: usize) {
    fill(give, group.rank(), round);
    group.all_to_all(elements(give), elements(take)).expect("a world");
    let share = give.byte_len() / UNIT / group.size();
    check(take, |at| value(at / share, round, group.rank() * share + at % share));
    give.as_bytes_mut().fill(0xEE);
}

fn broadcast(group: &Group, data: &mut Buffer, round: usize) {
    let root = round % group.size();
    fill(data, group.rank(), round);
    group.broadcast(elements(data), root).expect("a world");
    check(data, |at| value(root, round, at));
}

fn memory(group: &Group, of_the_group: bool, len: usize) -> Buffer {
    if of_the_group { group.buffer(len * UNIT).expect("memory") } else { Buffer::zeroed(len * UNIT) }
}

fn elements(buffer: &mut Buffer) -> &mut [i32] {
    buffer.as_mut_slice().expect("whole elements")
}

fn fill(buffer: &mut Buffer, rank: usize, round: usize) {
    elements(buffer).iter_mut().enumerate().for_each(|(at, element)| *element = value(rank, round, at));
}

fn check(buffer: &mut Buffer, expected: impl Fn(usize) -> i32) {
    let wrong = elements(buffer).iter().enumerate().find(|(at, element)| **element != expected(*at));
    assert_eq!(wrong, None);
}

/// What a rank has at a place: another number in each round.
fn value(rank: usize, round: usize, at: usize) -> i32 {
    (at as i32).wrapping_mul(31).wrapping_add(rank as i32 * 1_000_003).wrapping_add(round as i32 * 7_919)
}

const UNIT: usize = size_of::<i32>();
const ROUNDS: usize = 40;
