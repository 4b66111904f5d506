//! Ranks that are processes of their own, really killed and stopped: those that remain say who is gone, soon and with one
//! voice, and nothing stays behind.

mod allowance;
mod bad_way;
mod campaign;
mod churn;
mod containers;
mod cut_off;
mod forked;
mod hard_times;
mod hardship;
mod hosts;
mod lending;
#[path = "../planted/mistakes.rs"]
mod mistakes;
mod mixed;
mod play;
mod quarrels;
mod relay;
mod tcp;
mod times;
mod world;

use std::time::{Duration, Instant};

use times::Times;
use world::{Ground, World};

/// A rank of the other tests, in a process that they start.
#[test]
#[ignore = "a rank of the other tests, which start it"]
fn rank() {
    play::play();
}

#[test]
fn a_rank_that_is_killed_is_named_by_all_others() {
    killed_ranks_are_named(Ground::Segment, 20, &["its process ended"], Duration::from_millis(100));
}

/// Kills one rank of a world after another, `kills` times unless told otherwise, and holds the time until the others say so
/// against the bounds.
fn killed_ranks_are_named(ground: Ground, kills: usize, reasons: &[&str], usual: Duration) {
    let mut times = Times::of("a rank is killed", ground.name());
    for kill in 0..times::runs(kills) {
        let victim = kill % SIZE;
        let mut world = World::start_on(ground, "loop", SIZE);
        world.tell_all(&format!("{}", fastrand::u32(1..60)));
        world.expect(victim, "played");
        let killed = world.kill(&[victim]);
        let mut verdicts = vec![];
        times.add(world.others(&[victim]).map(|rank| {
            let (told, verdict) = world.hear(rank, "failed");
            let is_named = |why: &&str| verdict == format!("rank {victim} is dead: {why}");
            assert!(reasons.iter().any(is_named), "rank {rank}: {verdict}");
            verdicts.push(verdict);
            told - killed
        }));
        assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "{verdicts:?}");
        world.end();
    }
    times.hold(usual, LATE);
}

/// Row 4.
#[test]
fn half_of_the_ranks_killed_at_once_is_one_verdict() {
    half_is_named(Ground::Segment, "its process ended");
}

/// Kills two of four ranks at once: both others name them both.
fn half_is_named(ground: Ground, why: &str) {
    let mut times = Times::of("half of the ranks are killed at once", ground.name());
    for run in 0..times::slow_runs(2) {
        let victims = if run % 2 == 0 { [1, 2] } else { [0, 3] };
        let mut world = World::start_on(ground, "loop", SIZE);
        world.tell_all("20");
        victims.iter().for_each(|&victim| world.expect(victim, "played"));
        let killed = world.kill_at_once(&victims);
        let [one, other] = victims;
        times.add(world.others(&victims).map(|rank| {
            let (told, verdict) = world.hear(rank, "failed");
            assert_eq!(verdict, format!("ranks {one} and {other} are dead: {why}"), "rank {rank}");
            told - killed
        }));
        world.end();
    }
    times.hold(Duration::from_millis(500), LATE);
}

#[test]
fn a_rank_that_leaves_and_ends_is_named_as_one_that_left() {
    let world = World::start("leave", SIZE);
    assert_eq!(world.verdict(&[1]), "rank 1 has left: its group was dropped");
    world.end();
}

#[test]
fn a_rank_that_ends_without_leaving_is_dead() {
    let world = World::start("vanish", SIZE);
    assert_eq!(world.verdict(&[1]), "rank 1 is dead: its process ended");
    world.end();
}

/// As a script around a program does that starts it anew.
#[test]
fn a_rank_whose_process_runs_another_program_is_dead() {
    let mut world = World::start("exec", SIZE);
    let (began, _) = world.hear(1, "another program");
    for rank in world.others(&[1]) {
        let (told, verdict) = world.hear(rank, "failed");
        assert_eq!(verdict, "rank 1 is dead: its process runs another program", "rank {rank}");
        assert!(told.saturating_duration_since(began) < LATE, "rank {rank}: {:?}", told - began);
    }
    world.kill(&[1]);
    world.end();
}

#[test]
fn a_rank_that_panics_says_so() {
    let world = World::start("panic", SIZE);
    assert_eq!(world.verdict(&[1]), "rank 1 is dead: its thread panicked");
    world.end();
}

#[test]
fn a_rank_that_ends_between_operations_is_known_before_the_next() {
    let mut world = World::start("pause", SIZE);
    (0..SIZE).for_each(|rank| world.expect(rank, "paused"));
    world.kill(&[2]);
    world.reap(2);
    world.tell_all("go on");
    assert_eq!(world.verdict(&[2]), "rank 2 is dead: its process ended");
    world.end();
}

/// Row 6.
#[test]
fn a_rank_that_is_stopped_is_unresponsive_and_learns_it() {
    stopped_ranks_are_named(Ground::Segment, "stopped by a signal");
}

fn stopped_ranks_are_named(ground: Ground, why: &str) {
    let mut known = Times::of("a rank is stopped", ground.name());
    let mut learned = Times::of("a rank that was stopped learns that it was given up", ground.name());
    let expected = format!("rank 3 is unresponsive: {why}");
    for _ in 0..times::slow_runs(1) {
        let mut world = World::start_on(ground, "pause", SIZE);
        (0..SIZE).for_each(|rank| world.expect(rank, "paused"));
        let stopped = Instant::now();
        world.stop(3);
        world.tell_all("go on");
        known.add(world.others(&[3]).map(|rank| {
            let (told, verdict) = world.hear(rank, "failed");
            assert_eq!(verdict, expected, "rank {rank}");
            assert!(told - stopped > Duration::from_secs(2));
            told - stopped
        }));
        let resumed = Instant::now();
        world.resume(3);
        let (told, verdict) = world.hear(3, "failed");
        assert_eq!(verdict, expected);
        learned.add([told - resumed]);
        world.end();
    }
    known.hold(Duration::from_secs(4), Duration::from_millis(3250) + LATE);
    learned.hold(Duration::from_secs(1), LATE);
}

/// As many as are stopped are one failure, whoever is whose neighbour.
#[test]
fn ranks_of_a_host_that_are_stopped_at_once_are_one_verdict() {
    for stopped in [[0, 1], [1, 3]] {
        let mut world = World::start("pause", SIZE);
        (0..SIZE).for_each(|rank| world.expect(rank, "paused"));
        stopped.iter().for_each(|&rank| world.stop(rank));
        world.tell_all("go on");
        let [one, other] = stopped;
        for rank in world.others(&stopped) {
            let verdict = world.hear(rank, "failed").1;
            assert_eq!(verdict, format!("ranks {one} and {other} are unresponsive: stopped by a signal"));
        }
        stopped.iter().for_each(|&rank| world.resume(rank));
        world.end();
    }
}

#[test]
fn a_rank_that_is_stopped_is_late_and_not_dead() {
    let mut world = World::start("hasty", SIZE);
    (0..SIZE).for_each(|rank| world.expect(rank, "paused"));
    world.stop(3);
    world.tell_all("go on");
    let expected = play::missing(3);
    assert_eq!(world.verdict(&[3]), expected);
    world.resume(3);
    // What it would do now is over, and it learns of what.
    assert_eq!(world.hear(3, "failed").1, expected);
    world.end();
}

#[test]
fn what_a_rank_has_queued_is_done_before_its_process_ends() {
    a_queue_is_done(Ground::Segment);
}

fn a_queue_is_done(ground: Ground) {
    let world = World::start_on(ground, "queue", SIZE);
    world.others(&[1]).for_each(|rank| world.expect(rank, "got all"));
    world.end();
}

/// The ranks count for themselves what is still open when they have left, or when their group has failed.
fn nothing_is_left(ground: Ground) {
    let world = World::start_on(ground, "census", SIZE);
    (0..SIZE).for_each(|rank| assert_eq!(world.hear(rank, "left behind").1, "[]"));
    world.end();
    let mut world = World::start_on(ground, "bereft census", SIZE);
    (0..SIZE).for_each(|rank| world.expect(rank, "ready"));
    world.kill(&[1]);
    world.others(&[1]).for_each(|rank| assert_eq!(world.hear(rank, "left behind").1, "[]"));
    world.end();
}

#[test]
fn nothing_stays_behind() {
    nothing_is_left(Ground::Segment);
    let mut world = World::start("loop", SIZE);
    world.tell_all("1");
    (0..SIZE).for_each(|rank| world.expect(rank, "played"));
    world.kill(&[0, 1, 2, 3]);
    let door = world.end();
    let sockets = std::fs::read_to_string("/proc/net/unix").expect("the sockets of this machine");
    assert!(!sockets.contains(&door), "{sockets}");
}

const SIZE: usize = 4;
/// What a busy machine may take.
const LATE: Duration = Duration::from_secs(3);
