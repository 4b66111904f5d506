//! Once it is warm a blocking call takes no memory and faults no page in: both are counted, on every rank's thread.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use phalanx_comm::store::LocalStore;
use phalanx_comm::{Door, Network, Processes, Threads};
use phalanx_core::store::{Limits, Store};
use phalanx_core::{Group, ReduceOp};

#[test]
fn calls_between_threads() {
    let groups = Threads::new(RANKS).groups().expect("a world");
    let groups: Vec<_> = groups.into_iter().map(|group| Mutex::new(Some(group))).collect();
    play(|rank| groups[rank].lock().expect("no panic").take().expect("once"));
}

#[test]
fn calls_between_processes() {
    let name = format!("phalanx-steady-{}", std::process::id());
    let join = |rank| Processes::new(rank, RANKS, Door::named(name.clone()), [9; 16]).join(PATIENCE);
    play(|rank| join(rank).expect("a world"));
}

#[test]
fn calls_over_tcp() {
    let store = Store::new(LocalStore::new(Limits::default()));
    play(|rank| Network::new(rank, RANKS, store.clone()).shared_memory(false).join(PATIENCE).expect("a world"));
}

#[test]
fn calls_within_and_between_hosts() {
    let store = Store::new(LocalStore::new(Limits::default()));
    let hosts = vec![0, 0, 1];
    play(|rank| Network::new(rank, RANKS, store.clone()).hosts(hosts.clone()).join(PATIENCE).expect("a world"));
}

/// Lets every rank, on a thread of its own, make all calls at all lengths.
fn play(group: impl Fn(usize) -> Group + Sync) {
    let is_asked = AtomicBool::new(false);
    thread::scope(|scope| {
        for rank in 0..RANKS {
            let (group, is_asked) = (&group, &is_asked);
            scope.spawn(move || {
                let group = group(rank);
                LENGTHS.iter().for_each(|&len| calls(&group, len, is_asked));
            });
        }
    });
}

/// Makes each call with buffers of about this many elements until it is steady.
fn calls(group: &Group, len: usize, is_asked: &AtomicBool) {
    let share = len / RANKS;
    let (mut data, mut all, given) = (vec![1_f32; len], vec![0_f32; share * RANKS], vec![1_f32; share * RANKS]);
    let sum = ReduceOp::Sum;
    steady("all_reduce", len, || group.all_reduce(&mut data, sum).expect("a group"));
    steady("broadcast", len, || group.broadcast(&mut data, 1).expect("a group"));
    steady("reduce", len, || group.reduce(&mut data, sum, 2).expect("a group"));
    steady("all_gather", len, || group.all_gather(&given[..share], &mut all).expect("a group"));
    steady("reduce_scatter", len, || group.reduce_scatter(&given, &mut all[..share], sum).expect("a group"));
    steady("all_to_all", len, || group.all_to_all(&given, &mut all).expect("a group"));
    steady("barrier", len, || group.barrier().expect("a group"));
    // A message that comes before it is asked for takes memory, so the receiver says when: not by a message, which may come early too.
    steady("send and receive", len, || match group.rank() {
        0 => {
            while !is_asked.swap(false, Ordering::AcqRel) {
                thread::yield_now();
            }
            group.send(&given, 1, 0).expect("a group");
        }
        1 => {
            is_asked.store(true, Ordering::Release);
            group.recv(&mut all, 0, 0).expect("a group");
        }
        _ => {}
    });
}

/// That in some round of calls nothing was allocated and no page came in. A call that takes memory every time has no such
/// round; one that made something larger once, or a page that the system had taken away, is forgiven. All ranks make
/// the same number of rounds.
fn steady(name: &str, len: usize, mut call: impl FnMut()) {
    let mut seen = vec![];
    for _ in 0..ROUNDS {
        let before = faults();
        let allocations = allocation_counter::measure(|| (0..CALLS).for_each(|_| call())).count_total;
        seen.push((allocations, faults() - before));
    }
    assert!(seen.contains(&(0, 0)), "{name} of {len} elements: {CALLS} calls took (allocations, faults) {seen:?}");
}

/// How many pages this thread has faulted in.
fn faults() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).expect("this thread").minor_page_faults()
}

const RANKS: usize = 3;
const LENGTHS: [usize; 4] = [3, 700, 20_000, 400_000];
const ROUNDS: usize = 6;
const CALLS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(60);
