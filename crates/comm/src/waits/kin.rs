//! The groups of one rank, to all of which it says whom it waits for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use phalanx_core::{Chain, Error, Layout, Stuck, Timeout};

use super::chain::{self, End};
use super::wait::{self, WORDS, Wait};
use crate::fate::Fate;

/// The groups of a rank of one world.
#[derive(Debug, Default)]
pub(crate) struct Kin(Mutex<Family>);

#[derive(Debug, Default)]
struct Family {
    relatives: Vec<Relative>,
    /// What the others know of now, by number: threads of a rank wait beside each other.
    waits: BTreeMap<u64, Wait>,
    /// The number of the next wait.
    next: u64,
}

/// One of them.
#[derive(Clone, Debug)]
struct Relative {
    fate: Weak<Fate>,
    rank: usize,
    /// The world's numbers of its ranks.
    members: Arc<[usize]>,
}

/// One group among those of its rank.
#[derive(Clone, Debug)]
pub(crate) struct Kinship {
    kin: Arc<Kin>,
    rank: usize,
    members: Arc<[usize]>,
    name: String,
}

/// One wait of a rank: what is said of it is taken back when it ends, and only then.
#[derive(Debug)]
pub(crate) struct Vigil<'a> {
    kinship: &'a Kinship,
    /// The number under which the others know of it.
    told: Option<u64>,
}

impl Kin {
    /// Tells all groups of the rank of one more wait; under which number it is known.
    fn tell(&self, wait: Wait) -> u64 {
        let mut family = self.family();
        let number = family.next;
        family.next += 1;
        family.waits.insert(number, wait);
        family.say();
        number
    }

    /// Takes back what was told of one wait, and leaves what was of others.
    fn end(&self, number: u64) {
        let mut family = self.family();
        family.waits.remove(&number);
        family.say();
    }

    /// What a rank of the world says of its wait in a group that it shares with this one.
    fn wait_of(&self, world_rank: usize) -> Option<Wait> {
        let mut found = None;
        self.family().living(|fate, Relative { members, .. }| {
            let Some(rank) = members.iter().position(|member| *member == world_rank) else { return };
            let begun = begun(fate, rank);
            let wait = fate.roll.wait(rank).and_then(|words| Wait::decode(&words));
            found = found.take().or(wait.filter(|wait| wait.begun == begun));
        });
        found
    }

    fn family(&self) -> MutexGuard<'_, Family> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Family {
    /// Writes what the rank says to all its groups; nothing where it waits for nobody.
    fn say(&mut self) {
        let wait = self.whole();
        self.living(|fate, relative| {
            // As whoever reads it counts: what this rank itself has begun, where others of this process are in the group too.
            let begun = begun(fate, relative.rank);
            let words = wait.as_ref().map_or([0; WORDS], |wait| Wait { begun, ..wait.clone() }.encode());
            fate.say_wait(relative.rank, words);
        });
    }

    /// All waits as one, where the oldest is: the rank goes on once all are there for whom any of its threads waits.
    fn whole(&self) -> Option<Wait> {
        let oldest = self.waits.values().next()?;
        let mut peers: Vec<usize> = vec![];
        for &peer in self.waits.values().flat_map(|wait| &wait.peers) {
            if !peers.contains(&peer) {
                peers.push(peer);
            }
        }
        Some(Wait { peers, ..oldest.clone() })
    }

    fn living(&mut self, mut look: impl FnMut(&Fate, &Relative)) {
        self.relatives.retain(|relative| match relative.fate.upgrade() {
            Some(fate) => {
                look(&fate, relative);
                true
            }
            None => false,
        });
    }
}

/// The number of the last collective that a rank is known to have begun, and one more.
fn begun(fate: &Fate, rank: usize) -> u32 {
    fate.roll.last(rank).map_or(0, |print| print.sequence.wrapping_add(1))
}

impl Kinship {
    /// That of a group at `layout` of these members of the world.
    pub(crate) fn new(kin: Arc<Kin>, layout: &Layout, members: Arc<[usize]>, name: &str) -> Kinship {
        Kinship { kin, rank: layout.rank(), members, name: name.to_owned() }
    }

    /// The world's number of a rank of the group.
    pub(crate) fn world_rank(&self, rank: usize) -> usize {
        self.members[rank]
    }

    /// Says where this group's ranks tell each other of waits from now on.
    pub(crate) fn enter(&self, fate: &Arc<Fate>) {
        let relative = Relative { fate: Arc::downgrade(fate), rank: self.rank, members: Arc::clone(&self.members) };
        let mut family = self.kin.family();
        family.relatives.retain(|relative| relative.fate.strong_count() > 0);
        family.relatives.push(relative);
    }

    /// A wait that begins.
    pub(crate) fn vigil(&self) -> Vigil<'_> {
        Vigil { kinship: self, told: None }
    }

    /// The error of a wait that has taken too long, for those at its end.
    pub(crate) fn traced(&self, error: Error) -> Error {
        match error {
            Error::Timeout(timeout) => Error::Timeout(Box::new(self.followed(*timeout))),
            other => other,
        }
    }

    fn followed(&self, timeout: Timeout) -> Timeout {
        let direct = self.worldly(&timeout.stuck);
        let own = self.members.get(self.rank).copied();
        let (Some(own), false) = (own, direct.is_empty()) else { return timeout };
        let in_group = |rank: &usize| self.members.iter().position(|member| member == rank);
        match chain::follow(own, wait::shortened(&self.name), &direct, |rank| self.kin.wait_of(rank)) {
            End::Direct(ends) => {
                let ends: Vec<usize> = ends.iter().filter_map(in_group).collect();
                Timeout {
                    stuck: timeout.stuck.into_iter().filter(|stuck| ends.contains(&stuck.peer)).collect(),
                    ..timeout
                }
            }
            End::Circle(words) => Timeout { stuck: vec![], chain: Chain::Circle(words), ..timeout },
            End::Through(ends, words) => match ends.iter().map(in_group).collect::<Option<Vec<usize>>>() {
                Some(peers) => {
                    let stuck = peers.into_iter().map(Stuck::unknown).collect();
                    Timeout { stuck, chain: Chain::Through(words), ..timeout }
                }
                None => Timeout { stuck: vec![], chain: Chain::Beyond { path: words, ranks: ends }, ..timeout },
            },
        }
    }

    /// The world's numbers of the others who are waited for.
    fn worldly(&self, stuck: &[Stuck]) -> Vec<usize> {
        let others = stuck.iter().filter(|stuck| stuck.peer != self.rank);
        let mut ranks: Vec<usize> = others.filter_map(|stuck| self.members.get(stuck.peer).copied()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}

impl Vigil<'_> {
    /// Whether the others know of it.
    pub(crate) fn is_told(&self) -> bool {
        self.told.is_some()
    }

    /// Tells the others whom the rank waits for.
    pub(crate) fn tell(&mut self, stuck: &[Stuck]) {
        self.end();
        let Kinship { kin, name, .. } = self.kinship;
        self.told = Some(kin.tell(Wait { begun: 0, peers: self.kinship.worldly(stuck), group: name.clone() }));
    }

    /// The wait has ended, well or not yet.
    pub(crate) fn end(&mut self) {
        if let Some(number) = self.told.take() {
            self.kinship.kin.end(number);
        }
    }

    /// The wait was given up: what was said of it stands until the rank says something else, because the others may just be about to
    /// give up theirs.
    pub(crate) fn give_up(mut self) {
        if let Some(number) = self.told.take() {
            self.kinship.kin.family().waits.remove(&number);
        }
    }
}

impl Drop for Vigil<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bell::Bell;

    /// A program may form groups for as long as it runs, and wait for long in none.
    #[test]
    fn groups_that_are_gone_are_forgotten() {
        let kin = Arc::new(Kin::default());
        let layout = Layout::one_host(0, 1).expect("a rank");
        let group = || {
            let fate = Fate::of_threads(vec![Arc::new(Bell::new().expect("memory"))]).map(Arc::new).expect("memory");
            Kinship::new(Arc::clone(&kin), &layout, (0..layout.size()).collect(), "world").enter(&fate);
            fate
        };
        let stays = group();
        (0..10).for_each(|_| drop(group()));
        assert_eq!(kin.family().relatives.len(), 2, "the one that stays, and the last");
        drop(stays);
    }
}
