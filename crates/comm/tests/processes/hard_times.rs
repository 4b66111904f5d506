//! Ranks that are stopped for a moment, never call, have too little of something, or lose their store.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::allowance::Allowance;
use crate::hardship::cores;
use crate::play;
use crate::times::{self, Times};
use crate::world::{Ground, World};
use crate::{LATE, SIZE};

const GROUNDS: [Ground; 3] = [Ground::Segment, Ground::Tcp, Ground::Mixed];

/// How much longer than its time a call took, as a rank says it.
pub(crate) fn over(said: &str) -> Duration {
    Duration::from_micros(said.parse().expect("microseconds"))
}

/// Row 3: whose store it is does not matter to what is told, and no call on the store that died waits beyond its time.
#[test]
fn a_killed_rank_that_serves_the_store_is_named_by_all_others() {
    let mut known = Times::of("the rank that serves the store is killed", "TCP");
    let mut past = Times::of("a store that died: call past its deadline", "TCP");
    for _ in 0..times::slow_runs(1) {
        let mut world = World::start_with_a_file("hosting", SIZE);
        (0..SIZE).for_each(|rank| world.expect(rank, "ready"));
        let killed = world.kill(&[0]);
        for rank in 1..SIZE {
            let (told, verdict) = world.hear(rank, "lost");
            assert_eq!(verdict, "rank 0 is dead: connection closed");
            known.add([told - killed]);
            past.add((0..4).map(|_| over(&world.hear(rank, "over").1)));
        }
        world.end();
    }
    known.hold(Duration::from_millis(350), LATE);
    past.hold(Duration::from_millis(250), LATE);
}

/// Row 7.
#[test]
fn a_rank_that_is_stopped_for_a_moment_is_waited_for() {
    for ground in GROUNDS {
        let mut world = World::start_on(ground, "rounds", SIZE);
        (0..SIZE).for_each(|rank| world.expect(rank, "ready"));
        world.stop(3);
        world.tell_all("100");
        world.expect_none("", Duration::from_secs(2));
        world.resume(3);
        (0..SIZE).for_each(|rank| world.expect(rank, "done"));
        world.end();
    }
}

/// A rank that computes for long takes nothing, and what the others have begun to send waits for it.
#[test]
fn a_rank_that_comes_late_is_waited_for() {
    for ground in GROUNDS.into_iter().rev() {
        let mut world = World::start_on(ground, "late", SIZE);
        (0..SIZE).for_each(|rank| world.expect(rank, "ready"));
        world.expect_none("failed", if ground == Ground::Tcp { Duration::from_secs(11) } else { Duration::ZERO });
        world.tell_all("go on");
        (0..SIZE).for_each(|rank| world.expect(rank, "done"));
        world.end();
    }
}

/// Row 8.
#[test]
fn a_rank_that_never_calls_is_named_at_the_deadline() {
    for ground in GROUNDS {
        let mut world = World::start_on(ground, "idle", SIZE);
        (0..SIZE).for_each(|rank| world.expect(rank, "ready"));
        let asked = std::time::Instant::now();
        world.tell_all("go on");
        for rank in world.others(&[1]) {
            let (told, verdict) = world.hear(rank, "failed");
            assert_eq!(verdict, play::missing(1));
            assert!(told - asked < Duration::from_secs(2) + LATE);
        }
        world.end();
    }
}

/// A process ends once its core file is written. That must not hold what its peers have, nor the room for buffers; and it is not waited
/// for.
#[test]
fn a_rank_that_crashes_is_known_soon_in_spite_of_its_core_file() {
    let world = World::start("crash", SIZE);
    let (crashed, _) = world.hear(1, "crashing");
    for rank in world.others(&[1]) {
        let (told, verdict) = world.hear(rank, "failed");
        let why = ["its process ended", "it crashed, and its core file is being written"];
        assert!(why.iter().any(|why| verdict == format!("rank 1 is dead: {why}")), "{verdict}");
        assert!(told - crashed < LATE, "{:?}", told - crashed);
    }
    let directory = cores(world.pid(1).as_raw_nonzero().get() as u32);
    world.end();
    std::fs::remove_dir_all(directory).expect("it went there");
}

/// Row 43, for descriptors.
#[test]
fn a_rank_with_too_few_descriptors_is_an_error_for_all_and_leaks_nothing() {
    joins_in_the_end("scarce");
}

/// Row 43, for descriptors of the rank that lets the others in.
#[test]
fn a_host_with_too_few_descriptors_is_an_error_for_all_in_their_time_and_leaks_nothing() {
    joins_in_the_end("scarce at home");
}

/// Row 43, for memory.
#[test]
fn a_rank_with_too_little_memory_is_an_error_for_all_and_leaks_nothing() {
    joins_in_the_end("cramped");
}

/// Row 43, for the length of files.
#[test]
fn a_rank_whose_files_must_be_short_is_an_error_for_all_and_leaks_nothing() {
    join_in_the_end(World::start("curbed", 2));
}

/// Row 43, for memory that peers share, which the size of `/dev/shm` does not bound: who takes more than it may is ended by the
/// system, and named.
#[test]
fn a_rank_that_shares_more_memory_than_it_may_have_is_dead() {
    let Some(allowance) = Allowance::of_memory(64 << 20) else { return };
    for ground in [Ground::Segment, Ground::Mixed] {
        let mut world = World::start_on(ground, "greedy", SIZE);
        (0..SIZE).for_each(|rank| world.expect(rank, "ready"));
        allowance.bind(world.pid(1));
        world.tell_all("go on");
        let verdict = world.verdict(&[1]);
        assert!(verdict.starts_with("rank 1 is dead: "), "{verdict}");
        world.end();
    }
}

fn joins_in_the_end(play: &str) {
    // A store in a file keeps no connections for later, which would look like a leak.
    [World::start(play, 2), World::start_with_a_file(play, 2)].into_iter().for_each(join_in_the_end);
}

fn join_in_the_end(mut world: World) {
    let mut failures = 0;
    let joined = loop {
        let ends = [0, 1].map(|rank| world.hear(rank, "tried").1);
        assert_eq!(ends[0], ends[1]);
        if !ends[0].is_empty() {
            break ends[0].clone();
        }
        failures += 1;
        assert!(failures < 64, "they never join");
        world.tell_all("once more");
    };
    assert_ne!(failures, 0, "a group needs some");
    assert_eq!(joined, format!("and joined after {failures}"));
    world.end();
}

/// Row 44.
#[test]
fn many_ranks_on_one_processor_lose_nobody() {
    for (ground, size) in [(Ground::Segment, 64), (Ground::Tcp, 24)] {
        let mut world = World::start_on(ground, "crowded", size);
        (0..size).for_each(|rank| world.expect(rank, "ready"));
        world.tell_all("10");
        (0..size).for_each(|rank| world.expect(rank, "done"));
        world.end();
    }
}

/// Row 45.
#[test]
fn signals_lose_and_repeat_no_byte() {
    for ground in GROUNDS {
        let mut world = World::start_on(ground, "interrupted", SIZE);
        (0..SIZE).for_each(|rank| world.expect(rank, "ready"));
        world.tell_all("2000");
        let ((end, ended), interrupt) = (mpsc::channel::<()>(), world.interruption());
        // A thousand a second for each rank, until all are done.
        let storm = thread::spawn(move || {
            while ended.recv_timeout(Duration::from_millis(1)) == Err(RecvTimeoutError::Timeout) {
                interrupt();
            }
        });
        (0..SIZE).for_each(|rank| world.expect(rank, "done"));
        drop(end);
        storm.join().expect("no panic");
        world.end();
    }
}
