//! The groups of one rank, to all of which it says whom it waits for.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use phalanx_core::{Chain, Error, Layout, Stuck, Timeout};

use super::chain::{self, End};
use super::wait::{self, WORDS, Wait};
use crate::fate::Fate;

/// The groups of a rank of one world.
#[derive(Debug, Default)]
pub(crate) struct Kin {
    family: Mutex<Family>,
    /// Whether the others know of a wait that was given up: each call looks.
    is_stale: AtomicBool,
}

#[derive(Debug, Default)]
struct Family {
    relatives: Vec<Relative>,
    /// What the others know of now, by number: threads of a rank wait beside each other.
    waits: BTreeMap<u64, Wait>,
    /// Since when they know of one that was given up.
    stale: Option<Instant>,
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
        self.say(&mut family);
        number
    }

    /// Takes back what was told of one wait, and leaves what was of others.
    fn end(&self, number: u64) {
        let mut family = self.family();
        family.waits.remove(&number);
        self.say(&mut family);
    }

    /// Gives one wait up, of which the others still know.
    fn give_up(&self, number: u64) {
        let mut family = self.family();
        family.waits.remove(&number);
        family.stale = Some(Instant::now());
        self.is_stale.store(true, Ordering::Relaxed);
    }

    /// The rank makes a call: what it gave up so long ago it does not wait for.
    fn go_on(&self, patience: Duration) {
        if !self.is_stale.load(Ordering::Relaxed) {
            return;
        }
        self.forget(&mut self.family(), patience);
    }

    /// Takes back what was told of a wait that the rank gave up so long ago.
    fn forget(&self, family: &mut Family, patience: Duration) {
        if family.stale.is_some_and(|since| since.elapsed() >= patience) {
            self.say(family);
        }
    }

    fn say(&self, family: &mut Family) {
        family.stale = None;
        self.is_stale.store(false, Ordering::Relaxed);
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
        self.family.lock().unwrap_or_else(PoisonError::into_inner)
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
        let most = self.waits.values().map(|wait| wait.peers.len()).max()?;
        let mut peers: Vec<usize> = vec![];
        // Of each wait the first, then of each the second: few are told.
        for peer in (0..most).flat_map(|at| self.waits.values().filter_map(move |wait| wait.peers.get(at).copied())) {
            if !peers.contains(&peer) {
                peers.push(peer);
            }
        }
        let is_way_out = self.waits.len() > 1 || self.waits.values().any(|wait| wait.is_cut);
        let is_cut = is_way_out && peers.len() > wait::PEERS;
        Some(Wait { peers, is_cut, ..oldest.clone() })
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
        if family.stale.is_some() || !family.waits.is_empty() {
            // Who forms another group waits no more for what it gave up; what it does wait for is told there too.
            self.kin.say(&mut family);
        }
    }

    /// Says that this rank has left the group: it hears nothing there any more, and waits for nobody. What it
    /// gave up stands in its other groups for as long as where it makes a call: others may be about to give up theirs.
    pub(crate) fn leave(&self, fate: &Arc<Fate>) {
        let is_this =
            |relative: &Relative| ptr::eq(relative.fate.as_ptr(), Arc::as_ptr(fate)) && relative.rank == self.rank;
        let mut family = self.kin.family();
        if let Some(at) = family.relatives.iter().position(is_this) {
            family.relatives.remove(at);
            fate.say_wait(self.rank, [0; WORDS]);
            self.kin.forget(&mut family, STANDING);
        }
    }

    /// A wait that begins, with a call.
    pub(crate) fn vigil(&self) -> Vigil<'_> {
        self.kin.go_on(STANDING);
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

    /// Tells the others that the rank waits for all of these.
    pub(crate) fn tell(&mut self, stuck: &[Stuck]) {
        self.tell_of(stuck, false);
    }

    /// Tells the others that the rank waits for any one of these.
    pub(crate) fn tell_any(&mut self, stuck: &[Stuck]) {
        self.tell_of(stuck, true);
    }

    fn tell_of(&mut self, stuck: &[Stuck], is_one_enough: bool) {
        self.end();
        let Kinship { kin, name, .. } = self.kinship;
        let peers = self.kinship.worldly(stuck);
        let is_cut = is_one_enough && peers.len() > wait::PEERS;
        self.told = Some(kin.tell(Wait { begun: 0, peers, is_cut, group: name.clone() }));
    }

    /// The wait has ended, well or not yet.
    pub(crate) fn end(&mut self) {
        if let Some(number) = self.told.take() {
            self.kinship.kin.end(number);
        }
    }

    /// The wait was given up: what was said of it stands until the rank says something else or forms another group, and for a while where
    /// it makes other calls or leaves a group, because the others may just be about to give up theirs.
    pub(crate) fn give_up(mut self) {
        if let Some(number) = self.told.take() {
            self.kinship.kin.give_up(number);
        }
    }
}

impl Drop for Vigil<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// How long others know of a wait at least that was given up: other threads of the rank may make calls all the time.
const STANDING: Duration = Duration::from_secs(1);

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

    /// Two ranks, and what each knows of its groups.
    struct Pair([Arc<Kin>; 2]);

    impl Pair {
        /// One more group of both, as rank 0 sees it and as rank 1 does.
        fn group(&self, name: &str) -> (Arc<Fate>, [Kinship; 2]) {
            let bells = [(); 2].map(|()| Arc::new(Bell::new().expect("memory")));
            let fate = Arc::new(Fate::of_threads(bells.to_vec()).expect("memory"));
            let kinships = [0, 1].map(|rank| {
                let layout = Layout::one_host(rank, 2).expect("two ranks");
                let kinship = Kinship::new(Arc::clone(&self.0[rank]), &layout, (0..2).collect(), name);
                kinship.enter(&fate);
                kinship
            });
            (fate, kinships)
        }

        /// Whether rank 1 knows that rank 0 waits.
        fn is_known(&self) -> bool {
            self.0[1].wait_of(0).is_some()
        }
    }

    fn give_up(kinship: &Kinship) {
        let mut vigil = kinship.vigil();
        vigil.tell(&[Stuck::unknown(1)]);
        vigil.give_up();
    }

    #[test]
    fn of_the_waits_of_several_threads_each_is_told() {
        let wait = |peers: &[usize]| Wait { begun: 0, peers: peers.to_vec(), is_cut: false, group: String::new() };
        let waits = [(0, wait(&[0, 1, 2, 3])), (1, wait(&[5, 1]))].into();
        let whole = Family { waits, ..Family::default() }.whole().expect("waits");
        assert_eq!((&*whole.peers, whole.is_cut), (&[0, 5, 1, 2, 3][..], true));
        let whole = Family { waits: [(0, wait(&[0, 1, 2, 3, 4]))].into(), ..Family::default() }.whole();
        assert!(!whole.expect("a wait").is_cut, "all of them are waited for: a circle by one is one");
        let any = Wait { is_cut: true, ..wait(&[0, 1, 2, 3, 4]) };
        let whole = Family { waits: [(0, any)].into(), ..Family::default() }.whole();
        assert!(whole.expect("a wait").is_cut, "the last of them is enough, and is not told");
    }

    /// Others may be about to give up theirs; but it must not be told of a rank that hangs elsewhere by then.
    #[test]
    fn a_wait_that_was_given_up_stands_until_the_rank_goes_on() {
        let pair = Pair(Default::default());
        let (_first, [waiting, _]) = pair.group("first");
        give_up(&waiting);
        pair.0[0].go_on(Duration::MAX);
        assert!(pair.is_known(), "another thread makes a call");
        pair.0[0].go_on(Duration::ZERO);
        assert!(!pair.is_known(), "the call of one that has gone on");

        give_up(&waiting);
        let (_second, [again, _]) = pair.group("second");
        assert!(!pair.is_known(), "the group is formed anew");

        let mut vigil = again.vigil();
        vigil.tell(&[Stuck::unknown(1)]);
        let (third, _) = pair.group("third");
        assert_ne!(third.roll.wait(0), Some([0; WORDS]), "a group that is formed meanwhile");
        drop(vigil);
        assert!(!pair.is_known());
    }

    #[test]
    fn who_leaves_a_group_waits_there_no_more_after_a_while_as_its_other_groups_know() {
        let pair = Pair(Default::default());
        let (_stays, [again, _]) = pair.group("stays");
        let (left, [waiting, _]) = pair.group("left at once");
        give_up(&waiting);
        waiting.leave(&left);
        assert!(pair.is_known(), "others may be about to give up theirs");
        pair.0[0].go_on(Duration::ZERO);
        assert!(!pair.is_known(), "the call of one that has gone on");

        let leave_late = |kinship: &Kinship, fate: &Arc<Fate>| {
            pair.0[0].family().stale = Instant::now().checked_sub(STANDING);
            kinship.leave(fate);
        };
        let (left, [waiting, _]) = pair.group("left late");
        give_up(&waiting);
        assert!(pair.is_known());
        leave_late(&waiting, &left);
        assert!(!pair.is_known());

        let (left, [waiting, _]) = pair.group("left while another thread waits");
        let mut vigil = again.vigil();
        vigil.tell(&[Stuck::unknown(1)]);
        give_up(&waiting);
        leave_late(&waiting, &left);
        assert!(pair.is_known());
        drop(vigil);
    }

    #[test]
    fn a_group_that_was_left_tells_of_no_wait() {
        let pair = Pair(Default::default());
        let (fate, [waiting, reading]) = pair.group("left");
        give_up(&waiting);
        waiting.leave(&fate);
        assert!(!pair.is_known());
        let (_stays, [again, _]) = pair.group("stays");
        give_up(&again);
        assert_eq!(fate.roll.wait(0), Some([0; WORDS]));
        assert_eq!(pair.0[0].family().relatives.len(), 1);
        reading.leave(&fate);
        reading.leave(&fate);
        assert_eq!(pair.0[1].family().relatives.len(), 1);
    }
}
