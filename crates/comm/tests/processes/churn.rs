//! A world whose ranks are killed and replaced while it works: those who are there always have the same state, and nobody idles.

use std::time::{Duration, Instant};

use phalanx_comm::rendezvous::{World as Members, WorldOptions};
use phalanx_comm::{Transport, Wiring};
use phalanx_core::store::Store;
use phalanx_core::{Error, Group, GroupOptions, ReduceOp, Result};

use crate::play::{PATIENCE, belongings, own_number, say, settled, store};
use crate::world::{Ground, World};

/// Rows 38 and 40.
#[test]
fn ranks_in_a_segment_come_and_go() {
    come_and_go(Ground::Segment, 11);
}

#[test]
fn ranks_over_tcp_come_and_go() {
    come_and_go(Ground::Tcp, 12);
}

/// Kills ranks and starts others, one or two at a time, for as long as `PHALANX_TEST_CHURN` says in seconds. After each, all that live
/// must soon be in one world.
fn come_and_go(ground: Ground, seed: u64) {
    let seconds = std::env::var("PHALANX_TEST_CHURN").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    let (began, mut random) = (Instant::now(), fastrand::Rng::with_seed(seed));
    let mut world = World::start_with_a_server(ground, "churn", FIRST);
    let mut living: Vec<usize> = (0..FIRST).collect();
    let (mut changes, mut longest) = (0, Duration::ZERO);
    let mut reached = all_are_together(&world, &living);
    while began.elapsed() < Duration::from_secs(seconds) {
        let changed = Instant::now();
        // Whoever is killed was known to all.
        let mut known = living.clone();
        for _ in 0..random.usize(1..=2) {
            let is_kill = living.len() > LEAST && (living.len() >= MOST || random.bool());
            if is_kill {
                let victim = known.swap_remove(random.usize(..known.len()));
                living.retain(|&rank| rank != victim);
                world.kill(&[victim]);
                world.reap(victim);
            } else {
                living.push(world.add("newcomer"));
            }
            changes += 1;
        }
        let step = all_are_together(&world, &living);
        assert!(step >= reached, "after {changes} changes all go on from step {step}, and were at {reached} before");
        reached = step;
        longest = longest.max(changed.elapsed());
        // They work for a while, in which nothing else may change.
        let pause = Duration::from_millis(random.u64(500..2000)).saturating_sub(changed.elapsed());
        living.iter().for_each(|&rank| world.hear_none_of(rank, "", pause / living.len() as u32));
    }
    world.store().set("stop", "now").expect("the test's store");
    let ends: Vec<String> = living.iter().map(|&rank| world.hear(rank, "ended").1).collect();
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
    let (step, _) = ends[0].trim_start_matches("at ").split_once(' ').expect("a step");
    assert!(step.parse::<u64>().expect("a number") >= reached, "{} after step {reached}", ends[0]);
    for &rank in &living {
        assert_eq!(world.hear(rank, "more than at first").1, "[]", "rank {rank}");
    }
    let grown: Vec<i64> = living.iter().map(|&rank| world.hear(rank, "grown by").1.parse().expect("KiB")).collect();
    let most = grown.into_iter().max().unwrap_or_default();
    assert!(most < GROWTH, "{changes} changes, a rank has {most} KiB more than after a few");
    assert!(longest < TOGETHER, "{changes} changes, the longest took {longest:?}");
    let late = world.store().add(LATE, 0).expect("the test's store");
    log_times(ground, (changes, late), longest, most);
    assert!(10 * late < changes + 10, "{changes} changes, for {late} of which a rank that lived came too late");
    world.end();
}

fn log_times(ground: Ground, (changes, late): (i64, i64), longest: Duration, growth: i64) {
    if let Some(path) = std::env::var_os("PHALANX_TEST_TABLE") {
        let row = format!(
            "| {changes} ranks killed or added, {late} came too late | {ground:?} | longest until all were in one world: {longest:?} | a rank grew by {growth} KiB at most |\n"
        );
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        std::fs::write(path, before + &row).expect("a file for the table");
    }
}

/// Waits until every rank that lives has said that it is in a world of as many; from which step on all of them have gone on at least.
fn all_are_together(world: &World, living: &[usize]) -> u64 {
    let size = living.len().to_string();
    let heard = |rank: usize| -> u64 {
        loop {
            let said = world.hear(rank, "in a world of").1;
            let (of, step) = said.split_once(" from step ").expect("a step");
            if of == size {
                return step.parse().expect("a number");
            }
        }
    };
    living.iter().map(|&rank| heard(rank)).min().unwrap_or_default()
}

/// What all ranks share: it follows from all steps before and from who took part in them.
#[derive(Clone, Debug, PartialEq)]
struct State {
    step: u64,
    values: Vec<u64>,
}

/// What comes after a world.
enum Next {
    Change,
    End,
}

/// Works in one world after another until it is told to stop.
pub(crate) fn churn(is_newcomer: bool) {
    let (rank, size, door) = own_number();
    let store = store(&door);
    let options = WorldOptions::new(rank, size).timeout(PATIENCE);
    let joined = if is_newcomer { Members::enlist(&store, &options) } else { Members::join(store.clone(), &options) };
    let mut world = joined.expect("room in the world");
    let mut state = (!is_newcomer).then(|| State { step: 0, values: (0..LEN).collect() });
    let (mut before, mut memory, mut stepped) = (None, vec![], None);
    loop {
        memory.push(own_memory());
        let lost = match work(&world, &store, &mut state, (&mut before, &mut stepped)) {
            Ok(Next::End) => break,
            Ok(Next::Change) => vec![],
            Err(error) => error.culprits(),
        };
        let comes_at_once = stepped.is_some_and(|stepped: Instant| stepped.elapsed() < COMING / 3);
        world = match world.reconfigure(&lost, COMING) {
            Ok(next) => next,
            Err(error) if comes_at_once => return say(&format!("expelled: {error}")),
            // On a machine that is busy with other things the others may have waited for it in vain: it comes anew.
            Err(error) => {
                say(&format!("late: {error}"));
                store.add(LATE, 1).expect("the test's store");
                state = None;
                Members::enlist(&store, &options).expect("room in the world")
            }
        };
    }
    let State { step, values } = state.expect("it worked");
    say(&format!("ended at {step} with {:?}", values[0]));
    let before = before.unwrap_or_default();
    say(&format!("more than at first {:?}", settled(|| more_than(&before))));
    let settled = memory.get(SETTLED).map_or(0, |settled| own_memory() - settled);
    say(&format!("grown by {settled}"));
}

/// What this process has for itself, in KiB: its heap and stacks, not what it shares.
fn own_memory() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("of this process");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux 4.5 or later");
    line.trim_end_matches("kB").trim().parse().expect("a number")
}

/// Steps until an error, or until somebody waits to join, or the end. Keeps what this process had at first, and when it last did a step.
fn work(
    world: &Members,
    store: &Store,
    state: &mut Option<State>,
    (before, stepped): (&mut Option<Vec<String>>, &mut Option<Instant>),
) -> Result<Next> {
    let transport = if crate::play::is_on_tcp() { Transport::Tcp } else { Transport::Automatic };
    let options = GroupOptions::default().timeout(STEP);
    let group = world.wire(&Wiring::default().transport(transport).options(options).timeout(WIRING))?;
    let state = share(&group, state)?;
    say(&format!("in a world of {} from step {}", group.size(), state.step));
    loop {
        let news = match (group.rank(), state.step % 8) {
            (0, 0) if store.check(&["stop"]).map_err(Error::from)? => END,
            (0, 0) if world.waiting()? > 0 => CHANGE,
            _ => NOTHING,
        };
        let next = step(&group, state, news)?;
        *stepped = Some(Instant::now());
        if news_of(next).is_some() {
            drop(group);
            before.get_or_insert_with(belongings);
            return Ok(news_of(next).unwrap_or(Next::Change));
        }
    }
}

/// Everybody takes over the state of rank 0.
fn share<'a>(group: &Group, state: &'a mut Option<State>) -> Result<&'a mut State> {
    let own = state.get_or_insert_with(|| State { step: 0, values: vec![0; LEN as usize] });
    let mut all = [&[own.step], own.values.as_slice()].concat();
    group.broadcast(&mut all, 0)?;
    *own = State { step: all[0], values: all.split_off(1) };
    Ok(own)
}

/// One step of the work, in which all learn what rank 0 knows, and compare what they have.
fn step(group: &Group, state: &mut State, news: u64) -> Result<u64> {
    let weight = group.rank() as u64 + 1;
    let mut sums: Vec<u64> =
        state.values.iter().map(|value| value.wrapping_mul(weight).wrapping_add(state.step)).collect();
    sums.push(news);
    group.all_reduce(&mut sums, ReduceOp::Sum)?;
    let news = sums.pop().unwrap_or(NOTHING);
    *state = State { step: state.step + 1, values: sums };
    let hash =
        state.values.iter().fold(state.step, |hash, value| hash.rotate_left(5).wrapping_mul(0x9e37_79b9) ^ value);
    let mut hashes = vec![0; group.size()];
    group.all_gather(&[hash], &mut hashes)?;
    assert!(hashes.iter().all(|other| *other == hash), "step {}: {hashes:?}", state.step);
    Ok(news)
}

fn news_of(news: u64) -> Option<Next> {
    match news {
        NOTHING => None,
        END => Some(Next::End),
        _ => Some(Next::Change),
    }
}

/// What this process has more of than it had, however it is called.
fn more_than(before: &[String]) -> Vec<String> {
    let kind = |thing: &String| thing.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default().to_owned();
    let mut left: Vec<String> = before.iter().map(kind).collect();
    let mut all = belongings();
    // The client of the store keeps as many connections as were ever needed at once.
    let mut spare = KEPT_BY_CLIENT;
    all.retain(|thing| match left.iter().position(|known| *known == kind(thing)) {
        Some(at) => {
            left.swap_remove(at);
            false
        }
        None if thing.starts_with("socket") && spare > 0 => {
            spare -= 1;
            false
        }
        None => true,
    });
    all
}

/// How long a change waits for ranks that nobody knows to be dead: as long as each does where two died.
const COMING: Duration = Duration::from_secs(3);
/// How long a world may take to be wired, and a step: more than a busy machine needs, for a death is noticed otherwise.
const WIRING: Duration = Duration::from_secs(8);
const STEP: Duration = Duration::from_secs(20);
/// How soon all that live are in one world, also where some had to come anew.
const TOGETHER: Duration = Duration::from_secs(40);
/// Where ranks count how often one of them came too late: its state is lost then, so that it must not come often.
const LATE: &str = "late";
/// After so many worlds a rank has all that it needs.
const SETTLED: usize = 5;
/// In KiB: what the allocator may keep for another time.
const GROWTH: i64 = 8 * 1024;
const KEPT_BY_CLIENT: usize = 3;
const NOTHING: u64 = 0;
const CHANGE: u64 = 1;
const END: u64 = 2;
const LEN: u64 = 500;
const FIRST: usize = 4;
const LEAST: usize = 2;
const MOST: usize = 10;
