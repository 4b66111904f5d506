//! The same where the ranks reach each other over TCP: what happens to one, the others learn over their connections.

use std::time::{Duration, Instant};

use crate::play;
use crate::times::{self, Times};
use crate::world::{Ground, World};
use crate::{LATE, SIZE, half_is_named, killed_ranks_are_named};

fn start(play: &str) -> World {
    World::start_on(Ground::Tcp, play, SIZE)
}

/// What all but these ranks say of the group's failure, which must be the same.
fn verdict(world: &World, but: &[usize]) -> String {
    let verdicts: Vec<String> = world.others(but).map(|rank| world.hear(rank, "failed").1).collect();
    assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "{verdicts:?}");
    verdicts[0].clone()
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
    let mut known = Times::of("a rank is stopped", "TCP");
    let mut learned = Times::of("a rank that was stopped learns that it was given up", "TCP");
    for _ in 0..times::slow_runs(1) {
        let mut world = start("pause");
        (0..SIZE).for_each(|rank| world.expect(rank, "paused"));
        let stopped = Instant::now();
        world.stop(3);
        world.tell_all("go on");
        known.add(world.others(&[3]).map(|rank| {
            let (told, verdict) = world.hear(rank, "failed");
            assert_eq!(verdict, "rank 3 is unresponsive: silent for 3s");
            assert!(told - stopped > Duration::from_secs(2));
            told - stopped
        }));
        let resumed = Instant::now();
        world.resume(3);
        let (told, verdict) = world.hear(3, "failed");
        assert_eq!(verdict, "rank 3 is unresponsive: silent for 3s");
        learned.add([told - resumed]);
        world.end();
    }
    known.hold(Duration::from_secs(4), Duration::from_millis(3250) + LATE);
    learned.hold(Duration::from_secs(1), LATE);
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
        assert_eq!(verdict(&world, &[1]), told, "{play}");
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
    assert_eq!(verdict(&world, &[2]), "rank 2 is dead: connection closed");
    world.end();
}

#[test]
fn what_a_rank_has_queued_is_done_before_its_process_ends() {
    let world = start("queue");
    world.others(&[1]).for_each(|rank| world.expect(rank, "got all"));
    world.end();
}

#[test]
fn every_rank_hears_of_a_disagreement() {
    for (at, field) in play::MISTAKES.iter().map(|(field, _)| field).enumerate() {
        let world = start(&format!("mistake {at}"));
        let verdict = verdict(&world, &[]);
        let called = format!("called with {field} ");
        assert!(verdict.starts_with("operation 1: ") && verdict.contains(&called), "{field}: {verdict}");
        world.end();
    }
}

#[test]
fn nothing_stays_behind() {
    let world = start("census");
    (0..SIZE).for_each(|rank| assert_eq!(world.hear(rank, "left behind").1, "[]"));
    world.end();
}
