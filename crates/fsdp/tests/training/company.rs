//! Ranks as threads, in every division that a model may have.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use phalanx_comm::Threads;
use phalanx_comm::store::LocalStore;
use phalanx_comm::{Door, Network, Processes};
use phalanx_core::Result;
use phalanx_core::store::{Limits, Store};
use phalanx_core::{Group, GroupOptions};
use phalanx_fsdp::Groups;

/// How ranks are divided: replicas of the model, ranks that share one, and ranks that share a unit between forward and backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Company {
    pub(crate) replicas: usize,
    pub(crate) shards: usize,
    pub(crate) smaller: Option<usize>,
    pub(crate) way: Way,
}

/// How ranks reach each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Way {
    #[default]
    Threads,
    /// A segment of shared memory, of which each rank has a mapping of its own.
    Segment,
    /// TCP on this host.
    Sockets,
}

impl Company {
    pub(crate) fn of(shards: usize) -> Company {
        Company { replicas: 1, shards, smaller: None, way: Way::default() }
    }

    pub(crate) fn smaller(mut self, ranks: usize) -> Company {
        self.smaller = Some(ranks);
        self
    }

    pub(crate) fn replicas(mut self, replicas: usize) -> Company {
        self.replicas = replicas;
        self
    }

    pub(crate) fn way(mut self, way: Way) -> Company {
        self.way = way;
        self
    }

    pub(crate) fn size(self) -> usize {
        self.replicas * self.shards
    }

    /// Runs `rank` for every rank, with its groups and its number, and returns what each returned.
    pub(crate) fn run<R: Send>(self, rank: impl Fn(Groups, usize) -> R + Sync) -> Vec<R> {
        Company::run_with(self.groups(), rank)
    }

    /// The same with groups that were made before.
    pub(crate) fn run_with<R: Send>(groups: Vec<Groups>, rank: impl Fn(Groups, usize) -> R + Sync) -> Vec<R> {
        let rank = &rank;
        thread::scope(|scope| {
            let ranks = groups.into_iter().enumerate();
            let ranks = ranks.map(|(number, groups)| scope.spawn(move || rank(groups, number))).collect::<Vec<_>>();
            let ends = ranks.into_iter().map(|rank| rank.join()).collect::<Vec<_>>();
            ends.into_iter().map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    }

    /// The groups of each rank. Ranks of one replica follow each other.
    pub(crate) fn groups(self) -> Vec<Groups> {
        let mut along = (0..self.shards).map(|_| self.way.world(self.replicas).into_iter()).collect::<Vec<_>>();
        let mut groups = Vec::new();
        for _ in 0..self.replicas {
            let part = self.smaller.unwrap_or(1);
            let mut smaller = (0..self.shards / part).flat_map(|_| self.way.world(part));
            for (shard, group) in self.way.world(self.shards).into_iter().enumerate() {
                let mut all = Groups::new(group);
                let replicate = along[shard].next().expect("a group for each replica");
                if self.replicas > 1 {
                    all = all.replicate(replicate);
                }
                let narrow = smaller.next().expect("a part for each rank");
                groups.push(if self.smaller.is_some() { all.after_forward(narrow) } else { all });
            }
        }
        groups
    }
}

impl Way {
    fn world(self, size: usize) -> Vec<Group> {
        let options = GroupOptions::default().timeout(TIMEOUT);
        match self {
            Way::Threads => Threads::new(size).options(options).groups().expect("a world of threads"),
            Way::Segment => segment(size, &options),
            Way::Sockets => {
                let store = Store::new(LocalStore::new(Limits::default()));
                joined(size, |rank| Network::new(rank, size, store.clone()).options(options.clone()).join(TIMEOUT))
            }
        }
    }
}

fn segment(size: usize, options: &GroupOptions) -> Vec<Group> {
    static WORLDS: AtomicU64 = AtomicU64::new(0);
    let world = WORLDS.fetch_add(1, Ordering::Relaxed);
    let door = Door::named(format!("phalanx-fsdp-{}-{world}", std::process::id()));
    joined(size, |rank| Processes::new(rank, size, door.clone(), [7; 16]).options(options.clone()).join(TIMEOUT))
}

fn joined(size: usize, join: impl Fn(usize) -> Result<Group> + Sync) -> Vec<Group> {
    thread::scope(|scope| {
        let join = &join;
        let ranks: Vec<_> = (0..size).map(|rank| scope.spawn(move || join(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic").expect("a group")).collect()
    })
}

/// Long enough for a machine with more to do, and short enough that a hang is told as the error it should be.
const TIMEOUT: Duration = Duration::from_secs(120);
