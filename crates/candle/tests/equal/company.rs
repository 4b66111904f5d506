//! Ranks as threads, in the divisions that a model may have.

use std::thread;

use phalanx_candle::Groups;
use phalanx_comm::Threads;
use phalanx_core::Group;

/// How ranks are divided: replicas of the model, ranks that share one, and ranks that share a unit between forward and backward.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Company {
    replicas: usize,
    shards: usize,
    smaller: Option<usize>,
}

impl Company {
    pub(crate) fn of(shards: usize) -> Company {
        Company { replicas: 1, shards, smaller: None }
    }

    pub(crate) fn replicas(self, replicas: usize) -> Company {
        Company { replicas, ..self }
    }

    pub(crate) fn smaller(self, ranks: usize) -> Company {
        Company { smaller: Some(ranks), ..self }
    }

    /// Runs `rank` for every rank, with the groups of its model and that of all ranks, and returns what each returned.
    pub(crate) fn run<R: Send>(self, rank: impl Fn(Groups, Group) -> R + Sync) -> Vec<R> {
        let all = worlds(1, self.replicas * self.shards).remove(0);
        let replicas = worlds(self.shards, self.replicas);
        let part = self.smaller.unwrap_or(1);
        let smaller = worlds(self.replicas * self.shards / part, part);
        let shards = worlds(self.replicas, self.shards);
        let rank = &rank;
        thread::scope(|scope| {
            let ranks = all.into_iter().enumerate().map(|(number, all)| {
                let (replica, shard) = (number / self.shards, number % self.shards);
                let mut groups = Groups::new(shards[replica][shard].clone());
                if self.replicas > 1 {
                    groups = groups.replicate(replicas[shard][replica].clone());
                }
                if self.smaller.is_some() {
                    groups = groups.after_forward(smaller[number / part][number % part].clone());
                }
                scope.spawn(move || rank(groups, all))
            });
            let ranks: Vec<_> = ranks.collect();
            let ends = ranks.into_iter().map(|rank| rank.join());
            ends.map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    }
}

fn worlds(count: usize, size: usize) -> Vec<Vec<Group>> {
    (0..count).map(|_| Threads::new(size).groups().expect("a world of threads")).collect()
}
