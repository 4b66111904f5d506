//! Worlds as the suite needs them: how a backend makes them, and one thread for each rank.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use phalanx_comm::secure::JobKey;
use phalanx_comm::store::LocalStore;
use phalanx_comm::{Door, Network, Processes};
use phalanx_core::store::{Limits, Store};
use phalanx_core::{Group, GroupOptions, Result};

/// A backend, as far as the suite knows it.
pub(crate) struct Setting {
    /// Makes a world of this size.
    pub(crate) make: fn(usize, GroupOptions) -> Result<Vec<Group>>,
}

impl Setting {
    /// The groups of a new world.
    pub(crate) fn groups(&self, size: usize) -> Vec<Group> {
        let groups = (self.make)(size, GroupOptions::default().timeout(TIMEOUT)).expect("a world");
        assert_eq!(groups.len(), size);
        groups
    }

    /// Runs `rank` for every rank of a new world and returns what each returned.
    pub(crate) fn run<R: Send>(&self, size: usize, rank: impl Fn(&Group) -> R + Sync) -> Vec<R> {
        run(self.groups(size), rank)
    }
}

/// Runs `rank` for every rank of these groups and returns what each returned.
pub(crate) fn run<R: Send>(groups: Vec<Group>, rank: impl Fn(&Group) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let rank = &rank;
        let ranks: Vec<_> = groups.into_iter().map(|group| scope.spawn(move || rank(&group))).collect();
        let ends: Vec<_> = ranks.into_iter().map(|rank| rank.join()).collect();
        ends.into_iter().map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// A world that is made as by processes: each rank meets the others and has a mapping of its own.
pub(crate) fn joined(size: usize, style: impl Fn(Processes) -> Processes + Sync) -> Result<Vec<Group>> {
    static WORLDS: AtomicU64 = AtomicU64::new(0);
    let world = WORLDS.fetch_add(1, Ordering::Relaxed);
    let door = Door::named(format!("phalanx-conformance-{}-{world}", std::process::id()));
    let rank = |rank| style(Processes::new(rank, size, door.clone(), [5; 16])).join(TIMEOUT);
    thread::scope(|scope| {
        let rank = &rank;
        let ranks: Vec<_> = (0..size).map(|number| scope.spawn(move || rank(number))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

/// The key of every world that has one.
pub(crate) fn key() -> JobKey {
    JobKey::from_hex(&"07".repeat(32)).expect("a key")
}

/// A world whose ranks reach each other over TCP on this host.
pub(crate) fn connected(size: usize, style: impl Fn(Network) -> Network + Sync) -> Result<Vec<Group>> {
    let store = Store::new(LocalStore::new(Limits::default()));
    let rank = |rank| style(Network::new(rank, size, store.clone())).join(TIMEOUT);
    thread::scope(|scope| {
        let rank = &rank;
        let ranks: Vec<_> = (0..size).map(|number| scope.spawn(move || rank(number))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

/// Two ranks on each host, the last one perhaps alone.
pub(crate) fn rows(size: usize) -> Vec<u32> {
    (0..size as u32).map(|rank| rank / 2).collect()
}

/// Neighbours on different hosts, and hosts of different sizes.
pub(crate) fn interleaved(size: usize) -> Vec<u32> {
    (0..size).map(|rank| [5, 3, 5, 5, 9, 3][rank % 6]).collect()
}

/// Worlds small enough to try everything in, and one that is not.
pub(crate) const WORLDS: [usize; 6] = [1, 2, 3, 4, 5, 9];

/// Worlds of each size in which something small can differ.
pub(crate) const SMALL_WORLDS: [usize; 5] = [1, 2, 3, 4, 5];

/// Long enough for a machine with more to do, and short enough that a hang is told as the error it should be.
const TIMEOUT: Duration = Duration::from_secs(30);
