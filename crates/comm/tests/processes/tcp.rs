//! The same where the ranks reach each other over TCP: what happens to one, the others learn over their connections.

use std::time::{Duration, Instant};

use crate::world::{Ground, World};
use crate::{
    LATE, SIZE, a_queue_is_done, half_is_named, killed_ranks_are_named, nothing_is_left, stopped_ranks_are_named,
};

fn start(play: &str) -> World {
    World::start_on(Ground::Tcp, play, SIZE)
}

#[test]
fn a_rank_that_is_killed_is_named_by_all_others() {
    killed_ranks_are_named(Ground::Tcp, 8, &["connection closed"], Duration::from_millis(350));
}

/// Row 4.
#[test]
fn half_of_the_ranks_killed_at_once_is_one_verdict() {
    half_is_named(Ground::Tcp, "connection closed");
}

/// Row 6.
#[test]
fn a_rank_that_is_stopped_is_unresponsive_and_learns_it() {
    stopped_ranks_are_named(Ground::Tcp, "silent for 3s");
}

/// Row 57: whoever waits in a call notices that the thread does not run which watches over it.
#[test]
fn a_rank_whose_keeper_does_not_run_learns_it_as_all_others_do() {
    let mut world = start("loop");
    world.tell_all("20");
    (0..SIZE).for_each(|rank| world.expect(rank, "played"));
    let halted = world.stop_keeper(2);
    let stopped = Instant::now();
    for rank in 0..SIZE {
        let (told, verdict) = world.hear(rank, "failed");
        assert!(verdict.starts_with("rank 2 is unresponsive: "), "rank {rank}: {verdict}");
        // Looks are counted, and a busy machine lets a thread look less often.
        assert!(told - stopped < Duration::from_secs(5) + 4 * LATE, "rank {rank}: {:?}", told - stopped);
        assert_eq!(world.hear(rank, "culprits").1, "2");
    }
    drop(halted);
    world.end();
}

#[test]
fn ends_of_all_kinds_are_told_as_what_they_are() {
    let ends = [
        ("leave", "rank 1 has left: its group was dropped"),
        ("vanish", "rank 1 is dead: connection closed"),
        ("panic", "rank 1 is dead: its thread panicked"),
        ("abort", "group aborted: rank 1: the operator said so"),
    ];
    for (play, told) in ends {
        let world = start(play);
        assert_eq!(world.verdict(&[1]), told, "{play}");
        world.end();
    }
}

#[test]
fn a_rank_that_ends_between_operations_is_known_before_the_next() {
    let mut world = start("pause");
    (0..SIZE).for_each(|rank| world.expect(rank, "paused"));
    world.kill(&[2]);
    world.reap(2);
    world.tell_all("go on");
    assert_eq!(world.verdict(&[2]), "rank 2 is dead: connection closed");
    world.end();
}

#[test]
fn what_a_rank_has_queued_is_done_before_its_process_ends() {
    a_queue_is_done(Ground::Tcp);
}

#[test]
fn nothing_stays_behind() {
    nothing_is_left(Ground::Tcp);
}
