//! Ranks that disagree, one mistake after the other: all are told, go on, and lose nothing over it but time.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::{Error, Group, ReduceOp};

use crate::hard_times::over;
use crate::play::{belongings, failed, listen, say};
use crate::times::{self, Times};
use crate::world::{Ground, World};
use crate::{LATE, SIZE, mistakes};

/// Rows 25 to 32.
#[test]
fn ranks_in_a_segment_are_told_and_go_on() {
    all_are_told_and_go_on(Ground::Segment);
}

#[test]
fn ranks_over_tcp_are_told_and_go_on() {
    all_are_told_and_go_on(Ground::Tcp);
}

#[test]
fn ranks_of_several_hosts_are_told_and_go_on() {
    all_are_told_and_go_on(Ground::Mixed);
}

fn all_are_told_and_go_on(ground: Ground) {
    let mut told = Times::of("ranks disagree: all are told", ground.name());
    let mut back = Times::of("ranks disagreed: the next call is done", ground.name());
    for _ in 0..times::slow_runs(1) {
        let world = World::start_on(ground, "quarrel", SIZE);
        for planted in mistakes::of(SIZE) {
            let told_by = |rank| {
                let told = world.hear(rank, "disagreed").1;
                // Which of the lines it was is each rank's own.
                let (what, line) = told.split_once("; called here at ").expect("its own line");
                assert!(line.contains("planted/mistakes.rs:"), "{}: {told}", planted.what);
                what.to_owned()
            };
            let what: Vec<String> = (0..SIZE).map(told_by).collect();
            assert!(what.iter().all(|told| *told == what[0]), "{}: {what:?}", planted.what);
            planted.check(&what[0]);
            told.add((0..SIZE).map(|rank| over(&world.hear(rank, "told").1)));
            back.add((0..SIZE).map(|rank| over(&world.hear(rank, "back").1)));
        }
        (0..SIZE).for_each(|rank| assert_eq!(world.hear(rank, "grown by").1, "[]", "rank {rank}"));
        world.end();
    }
    told.hold(Duration::from_millis(250), LATE);
    back.hold(Duration::from_millis(250), LATE);
}

/// Those who come back wait for one that never will.
#[test]
fn a_rank_that_is_killed_after_a_disagreement_is_named() {
    for (ground, why) in [(Ground::Segment, "its process ended"), (Ground::Tcp, "connection closed")] {
        let mut world = World::start_on(ground, "quarrel", SIZE);
        (0..SIZE).for_each(|rank| world.expect(rank, "ready"));
        world.tell_all("once more");
        world.expect(2, "estranged");
        let killed = world.kill(&[2]);
        assert_eq!(world.verdict(&[2]), format!("rank 2 is dead: {why}"));
        assert!(killed.elapsed() < LATE);
        world.end();
    }
}

/// That is seen by rank 0 alone.
#[test]
fn a_rank_whose_process_runs_another_program_after_a_disagreement_is_named() {
    let mut world = World::start("quarrel", SIZE);
    (0..SIZE).for_each(|rank| world.expect(rank, "ready"));
    world.tell_all("once more");
    world.expect(2, "estranged");
    world.tell_all(ANOTHER);
    let (began, _) = world.hear(2, ANOTHER);
    assert_eq!(world.verdict(&[2]), "rank 2 is dead: its process runs another program");
    assert!(began.elapsed() < LATE);
    world.kill(&[2]);
    world.end();
}

/// Makes every mistake, says what it is told and how long that and the way back took, and what this process has more than before.
/// Then makes one more, after which rank 2 does not come back, and goes on as another program where it is told to.
pub(crate) fn quarrel(group: &Group) {
    let (mut before, mut rounds) = (vec![], 0);
    for planted in mistakes::of(group.size()) {
        group.barrier().expect("all are here");
        let began = Instant::now();
        let error = planted.make(group).expect_err(planted.what);
        let (told, again) = (began.elapsed(), Instant::now());
        let mut sum = [1_usize as u64; 1000];
        group.all_reduce(&mut sum, ReduceOp::Sum).expect(planted.what);
        let back = again.elapsed();
        assert!(sum.iter().all(|sum| *sum == group.size() as u64));
        say(&format!("disagreed {error}"));
        say(&format!("told {}", told.as_micros()));
        say(&format!("back {}", back.as_micros()));
        rounds += 1;
        if before.is_empty() {
            before = settled_belongings(usize::MAX);
        }
    }
    // One that every round left behind would be more; the store's client may have needed another connection at some time.
    let most = before.len() + rounds / 2;
    let after = settled_belongings(most);
    let count = |thing: &String, all: &[String]| all.iter().filter(|other| *other == thing).count();
    let grown: Vec<&String> = after.iter().filter(|thing| count(thing, &after) > count(thing, &before)).collect();
    let is_more = after.len() > most;
    say(&format!("grown by {:?}", if is_more { grown } else { vec![] }));
    say("ready");
    if listen().is_empty() {
        return;
    }
    let planted = mistakes::of(group.size()).next().expect("there are some");
    let error = planted.make(group).expect_err(planted.what);
    assert!(matches!(error, Error::Desync(_)), "{error}");
    say("estranged");
    if group.rank() == 2 {
        if listen() == ANOTHER {
            say(ANOTHER);
            panic!("sleep: {}", Command::new("sleep").arg("60").exec());
        }
    } else if let Err(error) = group.barrier() {
        failed(&error);
    }
}

/// What this process has once what it left behind is gone, down to this number of things.
fn settled_belongings(len: usize) -> Vec<String> {
    let began = Instant::now();
    loop {
        // An old round is left by a thread of its own.
        let all = belongings();
        let is_leaving = all.iter().any(|thing| thing.starts_with("phalanx-part"));
        if (!is_leaving && all.len() <= len) || began.elapsed() > LATE {
            return all;
        }
        thread::yield_now();
    }
}

const ANOTHER: &str = "another program";
