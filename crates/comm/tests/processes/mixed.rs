//! The same where ranks share memory with their neighbours and reach the others over TCP: what happens to one, all learn alike.

use std::time::Duration;

use crate::world::{Ground, World};
use crate::{LATE, SIZE, a_queue_is_done, killed_ranks_are_named, nothing_is_left};

fn start(play: &str) -> World {
    World::start_on(Ground::Mixed, play, SIZE)
}

#[test]
fn a_rank_that_is_killed_is_named_by_its_neighbour_and_by_all_others() {
    killed_ranks_are_named(Ground::Mixed, 8, &ENDED, Duration::from_millis(350));
}

#[test]
fn a_host_that_is_killed_is_one_verdict() {
    for victims in [[0, 1], [2, 3], [1, 2]] {
        let mut world = start("loop");
        world.tell_all("20");
        victims.iter().for_each(|&victim| world.expect(victim, "played"));
        let killed = world.kill(&victims);
        let verdict = world.verdict(&victims);
        let [first, second] = victims;
        // What ended at the same time is told together, if it is seen together.
        let told = [first, second].map(|victim| format!("rank {victim} is dead"));
        let told = [told.as_slice(), &[format!("ranks {first} and {second} are dead")]].concat();
        let names = |who: &String| ENDED.iter().any(|why| verdict == format!("{who}: {why}"));
        assert!(told.iter().any(names) && killed.elapsed() < LATE, "{verdict}");
        world.end();
    }
}

#[test]
fn ends_of_all_kinds_are_told_as_what_they_are() {
    let ends = [
        ("leave", &["rank 1 has left: its group was dropped"][..]),
        ("vanish", &["rank 1 is dead: connection closed", "rank 1 is dead: its process ended"]),
        ("panic", &["rank 1 is dead: its thread panicked"]),
        ("abort", &["group aborted: rank 1: the operator said so"]),
    ];
    for (play, told) in ends {
        let world = start(play);
        let verdict = world.verdict(&[1]);
        assert!(told.contains(&&*verdict), "{play}: {verdict}");
        world.end();
    }
}

#[test]
fn what_a_rank_has_queued_is_done_before_its_process_ends() {
    a_queue_is_done(Ground::Mixed);
}

#[test]
fn nothing_stays_behind() {
    nothing_is_left(Ground::Mixed);
}

/// A neighbour may see the end of a process before that of its connections, or after it.
const ENDED: [&str; 2] = ["connection closed", "its process ended"];
