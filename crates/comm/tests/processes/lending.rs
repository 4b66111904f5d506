//! Memory that ranks lend each other, and one that goes on when all others have given it up.

use phalanx_core::{Group, ReduceOp};

use crate::SIZE;
use crate::play::{first, listen, say};
use crate::world::World;

/// Joins a buffer that all ranks can write, again and again. When that fails the buffer is this rank's alone.
pub(crate) fn lend(group: &Group) {
    let mut buffer = group.buffer(32 << 20).expect("address space");
    let numbers: &mut [i32] = buffer.as_mut_slice().expect("whole numbers");
    numbers.fill(1);
    let mut round = 0;
    let error = loop {
        if let Err(error) = group.all_reduce(numbers, ReduceOp::Max) {
            break error;
        }
        assert!([numbers[0], numbers[numbers.len() - 1]].iter().all(|number| (1..=round + 1).contains(number)));
        round += 1;
        numbers.fill(round);
        if round == 3 {
            say("ready");
        }
    };
    numbers.fill(MINE);
    say(&format!("failed {}", first(&error)));
    listen();
    assert!(numbers.iter().all(|number| *number == MINE), "a peer has written here");
    say("whole");
}

/// Row 6, where the rank that stops was about to write the others' memory: it does so when nobody counts on it any more.
#[test]
fn a_rank_that_wakes_too_late_spoils_nothing() {
    let mut world = World::start("lend", SIZE);
    (0..SIZE).for_each(|rank| world.expect(rank, "ready"));
    world.stop(3);
    let verdict = world.hear(0, "failed").1;
    assert!(verdict.contains("not finished after 2s; waiting for rank 3"), "{verdict}");
    world.others(&[0, 3]).for_each(|rank| assert_eq!(world.hear(rank, "failed").1, verdict));
    world.resume(3);
    assert_eq!(world.hear(3, "failed").1, verdict);
    world.tell_all("look");
    (0..SIZE).for_each(|rank| world.expect(rank, "whole"));
    world.end();
}

const MINE: i32 = -1;
