//! Hosts that are cut off from each other, in both directions or in one, for good or for a while: all ranks say within the
//! bound who is not heard any more, or go on as if nothing had been.

use std::time::{Duration, Instant};

use crate::LATE;
use crate::hard_times::over;
use crate::hosts::Hosts;
use crate::times::{self, Times};
use crate::world::World;

/// Two hosts with two ranks each, which have begun to play.
fn two_by_two(hosts: &Hosts) -> World {
    let world = World::start_between(hosts, "rounds", &[0, 0, 1, 1]);
    (0..4).for_each(|rank| world.expect(rank, "ready"));
    world
}

/// When each of these ranks says that the group failed of this.
fn told(world: &World, ranks: [usize; 2], verdict: &str) -> [Instant; 2] {
    ranks.map(|rank| {
        let (when, said) = world.hear(rank, "failed");
        assert_eq!(said, verdict, "rank {rank}");
        when
    })
}

/// Row 11.
#[test]
fn a_partition_is_told_on_both_sides() {
    partition("the network is partitioned, 2 and 2 ranks", &[0, 1]);
}

/// Row 12: those who hear nobody tell the others, who hear them, and all say the same.
#[test]
fn a_partition_of_one_direction_is_told_on_both_sides() {
    partition("the network is partitioned in one direction", &[1]);
}

/// Row 15: nobody is in an operation, and the first one after the bound has nothing to wait for.
#[test]
fn a_host_that_vanishes_is_known_before_the_next_operation() {
    let mut times = Times::of("a host vanishes while its group is idle: next call", "TCP");
    for _ in 0..times::slow_runs(1) {
        let Some(hosts) = Hosts::connected(2) else { return };
        let mut world = two_by_two(&hosts);
        hosts.unplug(1);
        world.expect_none("failed", BOUND);
        let asked = Instant::now();
        world.tell_all("1");
        times.add(both_sides(&world, &[0, 1], asked));
        world.end();
    }
    times.hold(Duration::from_millis(250), LATE);
}

/// Row 16.
#[test]
fn a_partition_that_heals_in_time_is_no_failure() {
    heals("a partition of 2.5 s heals: time to go on", Duration::from_millis(2500), Duration::from_secs(1));
}

/// The same for one just after which the systems pause for long.
#[test]
fn a_short_partition_is_no_failure() {
    heals("a partition of 1.5 s heals: time to go on", Duration::from_millis(1500), LATE);
}

fn heals(fault: &'static str, outage: Duration, usual: Duration) {
    let mut times = Times::of(fault, "TCP");
    for _ in 0..times::slow_runs(1) {
        let Some(hosts) = Hosts::connected(2) else { return };
        let (mut world, mut healed) = cut_off_for(&hosts, outage);
        while healed.since_cut > outage + PROMPT {
            (world, healed) = cut_off_for(&hosts, outage);
        }
        let went_on = [0, 1, 2, 3].map(|rank| world.hear(rank, "done").0);
        times.add(went_on.into_iter().map(|done| done - healed.at));
        world.end();
    }
    times.hold(usual, 2 * LATE);
}

/// When a way was open again, and how long nothing had passed.
struct Healed {
    at: Instant,
    since_cut: Duration,
}

/// A world between these hosts, which could not hear each other for at least this long.
fn cut_off_for(hosts: &Hosts, outage: Duration) -> (World, Healed) {
    let mut world = two_by_two(hosts);
    let cut = Instant::now();
    hosts.deafen(&[0, 1]);
    world.tell_all("1");
    world.expect_none("", outage.saturating_sub(cut.elapsed()));
    hosts.restore(&[0, 1]);
    let at = Instant::now();
    (world, Healed { at, since_cut: at - cut })
}

/// Row 13.
#[test]
fn ranks_go_on_without_the_store() {
    let Some(hosts) = Hosts::connected(3) else { return };
    let mut world = World::start_between(&hosts, "beside a store", &[0, 1, 2]);
    (0..3).for_each(|rank| world.expect(rank, "ready"));
    hosts.unplug(2);
    world.tell_all("go on");
    let mut times = Times::of("a store that cannot be reached: call past its deadline", "TCP");
    for rank in 0..2 {
        times.add((0..4).map(|_| over(&world.hear(rank, "over").1)));
        world.expect(rank, "done");
    }
    world.end();
    times.hold(Duration::from_millis(250), LATE);
}

/// Row 19: what has to pass takes two seconds at this rate.
#[test]
fn a_narrow_way_makes_ranks_slow_and_not_wrong() {
    let Some(hosts) = Hosts::connected(2) else { return };
    let mut world = two_by_two(&hosts);
    hosts.narrow(1);
    world.tell_all("300");
    (0..4).for_each(|rank| world.expect(rank, "done"));
    world.end();
}

/// Somewhere the rows above are played: where the whole suite has to pass, they are not all skipped.
#[test]
fn not_all_of_this_is_skipped() {
    let is_required = std::env::var_os("CI").is_some();
    assert!(Hosts::connected(2).is_some() || !is_required, "no row between hosts was played");
}

/// Cuts a busy group in two by making these hosts deaf, and measures until every rank gives up the other side.
fn partition(fault: &'static str, deaf: &[usize]) {
    let mut times = Times::of(fault, "TCP");
    for _ in 0..times::slow_runs(1) {
        let Some(hosts) = Hosts::connected(2) else { return };
        let (mut world, mut cut) = cut_in_two(&hosts, deaf);
        while cut.took > PROMPT {
            hosts.restore(deaf);
            (world, cut) = cut_in_two(&hosts, deaf);
        }
        times.add(both_sides(&world, deaf, cut.began));
        world.end();
    }
    times.hold(BOUND, BOUND + LATE);
}

/// When a way began to be closed, and how long that took.
struct Cut {
    began: Instant,
    took: Duration,
}

/// A busy world between these hosts, some of which hear nothing any more.
fn cut_in_two(hosts: &Hosts, deaf: &[usize]) -> (World, Cut) {
    let mut world = two_by_two(hosts);
    world.tell_all("1000000");
    let began = Instant::now();
    hosts.deafen(deaf);
    (world, Cut { began, took: began.elapsed() })
}

/// How long after a moment each rank has told that it gives up those whom the deaf hosts hear no more.
fn both_sides(world: &World, deaf: &[usize], since: Instant) -> Vec<Duration> {
    let verdict_of = |host: usize| match deaf.contains(&host) {
        true => SILENT[1 - host],
        false => SILENT[host],
    };
    let (here, there) = (told(world, [0, 1], verdict_of(0)), told(world, [2, 3], verdict_of(1)));
    [here, there].concat().into_iter().map(|told| told - since).collect()
}

/// How long it may take to cut or to heal; where a busy machine takes longer, the try does not count.
const PROMPT: Duration = Duration::from_millis(150);
/// What is said of the ranks of each host by who does not hear them.
const SILENT: [&str; 2] =
    ["ranks 0 and 1 are unresponsive: silent for 3s", "ranks 2 and 3 are unresponsive: silent for 3s"];
/// How soon it must be known that a rank is not heard any more.
const BOUND: Duration = Duration::from_millis(3250);
