//! What groups cost while nobody calls them: next to no processor. In a process of its own, because its time is counted.

use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use phalanx_comm::store::LocalStore;
use phalanx_comm::{Door, Network, Processes};
use phalanx_core::store::{Limits, Store};
use phalanx_core::{Group, ReduceOp};

/// One test, so that nothing else runs beside it.
#[test]
fn an_idle_group_uses_less_than_a_hundredth_of_a_processor() {
    let name = format!("phalanx-idle-{}", std::process::id());
    idle("shared memory", |rank| Processes::new(rank, RANKS, Door::named(name.clone()), [8; 16]).join(PATIENCE));
    let store = Store::new(LocalStore::new(Limits::default()));
    idle("TCP", |rank| Network::new(rank, RANKS, store.clone()).shared_memory(false).join(PATIENCE));
}

/// Lets all ranks work and rest. An asynchronous call has started their drivers.
fn idle(what: &str, join: impl Fn(usize) -> phalanx_core::Result<Group> + Sync) {
    let begin = |rank| {
        let group = join(rank).expect("a world");
        let work = group.all_reduce_async(vec![1_u32; 1000], ReduceOp::Sum).expect("a group");
        assert_eq!(work.wait().expect("a group")[0], RANKS as u32);
        group
    };
    let groups: Vec<Group> = thread::scope(|scope| {
        let begin = &begin;
        let ranks: Vec<_> = (0..RANKS).map(|rank| scope.spawn(move || begin(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    });
    // Where much else runs the same takes more of a processor's time: what a group costs by itself is the least of some rests.
    let rest = || {
        let (began, before) = (Instant::now(), processor_time());
        thread::sleep(REST);
        (processor_time() - before, began.elapsed())
    };
    let mut rests = vec![];
    while rests.last().is_none_or(|&(used, rested): &(Duration, Duration)| used * 100 >= rested) {
        assert!(rests.len() < RESTS, "{RANKS} idle ranks over {what} used of the time {rests:?}");
        rests.push(rest());
    }
    drop(groups);
}

/// What this process has had of the processors.
fn processor_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("this process");
    let micros = (usage.user_time() + usage.system_time()).num_microseconds();
    Duration::from_micros(micros.try_into().expect("no time before the start"))
}

const RANKS: usize = 8;
/// Several times as long as between two signs of life.
const REST: Duration = Duration::from_secs(2);
const RESTS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(60);
