//! Worlds that lose ranks and gain others while they work.

use std::time::{Duration, Instant};

use phalanx_core::store::Store;
use phalanx_core::{Error, Ranks, Result};

use super::WorldOptions;
use super::card::Card;
use super::change::Changes;
use super::election::{Elector, Entry};
use super::world::{Origin, World};
use crate::moment;

impl World {
    /// The next world: of the ranks of this one that call this too, in their order, and then of the [waiting](World::waiting)
    /// newcomers, but for those who are gone: who does not answer within two seconds is not let in. The `lost` ranks of this world
    /// are neither waited for nor let in; this rank is none of them, also where it is named. Where ranks work with several groups, one may
    /// hear first of a rank that left its group because of another, and would have it left out: name nobody then, and the lost are waited for.
    ///
    /// Groups of this world can no longer be formed, and those that exist are of no use once a rank is gone: drop them. What
    /// ranks need to go on, give them from rank 0, which was in this world as all below [`survivors`](World::survivors) were.
    /// Whoever does not call this within `patience` is left behind, and told so when it does.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use phalanx_comm::rendezvous::World;
    /// # fn next(world: World, error: &phalanx_core::Error) -> phalanx_core::Result<World> {
    /// // After a call on a group of this world has failed of `error`:
    /// let world = world.reconfigure(&error.culprits(), Duration::from_secs(5))?;
    /// # Ok(world)
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup) where the world went on without this rank, or the store cannot be reached; that within a second of
    /// the end of `patience`, or of the two seconds that newcomers have.
    pub fn reconfigure(mut self, lost: &[usize], patience: Duration) -> Result<World> {
        let until = moment::after(patience.saturating_add(LAST_WORDS));
        let (changes, number) = (Changes::new(self.base(), until), self.change() + 1);
        let own = &self.members()[self.rank()];
        let mut card = Card::of_this_process(u32::try_from(own.local_rank()).ok(), self.hosts_store());
        // A world is known by when it met, as later than the one before, whose latest clock may have been that of a rank that is lost.
        card.made_ns = card.made_ns.max(self.registry().met_ns().map_or(0, |met| met.saturating_add(1)));
        let entry = Entry { token: token()?, seat: u32::try_from(self.rank()).ok(), card: card.encode() };
        let lost: Vec<usize> = lost.iter().copied().filter(|&rank| rank != self.rank()).collect();
        let elector = Elector { size: self.size(), lost: &lost, patience };
        let entered = changes.enter(number, &entry).map_err(Error::from);
        let outcome = entered.and_then(|()| changes.outcome(number, &elector));
        // Who cannot reach the store cannot say farewell there either.
        let elected = outcome.inspect_err(|_| self.owe_no_farewell())?;
        let Some(rank) = elected.iter().position(|elected| elected.token == entry.token) else {
            let others: Vec<usize> = elected.iter().filter_map(|entry| entry.seat).map(|seat| seat as usize).collect();
            let with = if others.is_empty() {
                "more than once".to_owned()
            } else {
                format!("with {}", Ranks(&others).named())
            };
            let why = format!("the world went on without rank {}: {with}", self.rank());
            return Err(Error::setup(RECONFIGURING, why));
        };
        let origin = Origin { own: changes.scope(number), change: number, survivors: survivors(&elected) };
        self.into_next(rank, cards(&elected)?, origin)
    }

    /// Joins a world that works already, with its next [change](World::reconfigure). `options` say the world's job and epoch; rank and
    /// size do not matter.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup) where the world does not change in time, or the store cannot be reached.
    pub fn enlist(store: &Store, options: &WorldOptions) -> Result<World> {
        let began = options.began.unwrap_or_else(Instant::now);
        let deadline = moment::later(began, options.timeout);
        let base = World::keys(store, options);
        let changes = Changes::new(&base, moment::later(began, options.timeout.saturating_add(LAST_WORDS)));
        let local_rank = options.local_rank.and_then(|rank| u32::try_from(rank).ok());
        let card = Card::of_this_process(local_rank, false).encode();
        let entry = Entry { token: token()?, seat: None, card };
        let mut last = None;
        loop {
            let before = last.map_or(changes.current()?, |last: u32| changes.current().unwrap_or(last).max(last));
            let none =
                || Error::setup(ENLISTING, format!("its last change has number {before}, after which there is none"));
            let number = before.checked_add(1).ok_or_else(none)?;
            last = Some(number);
            changes.enter(number, &entry)?;
            let mut elected = changes.hear(number, &entry, deadline)?;
            if elected.is_none() {
                changes.withdraw(number, &entry)?;
                // What was decided before the others could know of that holds.
                elected = changes.decided(number)?;
            }
            let Some(elected) = elected else {
                let why =
                    format!("the world of job {} did not change within {:?}", options.job.as_str(), options.timeout);
                return Err(Error::setup(ENLISTING, why));
            };
            // One that was just decided may be without those who came last.
            if let Some(rank) = elected.iter().position(|elected| elected.token == entry.token) {
                let origin = Origin { own: changes.scope(number), change: number, survivors: survivors(&elected) };
                return World::of_change(base, rank, cards(&elected)?, origin, options);
            }
        }
    }

    /// How many newcomers wait to join with the next change.
    ///
    /// # Errors
    ///
    /// When the store cannot be reached within three seconds.
    pub fn waiting(&self) -> Result<usize> {
        Ok(Changes::new(self.base(), moment::after(ANSWER)).waiting(self.change() + 1)?)
    }
}

fn survivors(elected: &[Entry]) -> usize {
    elected.iter().filter(|entry| entry.seat.is_some()).count()
}

fn cards(elected: &[Entry]) -> Result<Vec<Card>> {
    let cards: Option<Vec<Card>> = elected.iter().map(|entry| Card::decode(&entry.card)).collect();
    cards.ok_or_else(|| Error::setup(RECONFIGURING, "a rank has a card of another version of this library"))
}

fn token() -> Result<[u8; 16]> {
    let mut token = [0; 16];
    getrandom::fill(&mut token).map_err(|error| Error::setup("random bytes", error))?;
    Ok(token)
}

const RECONFIGURING: &str = "reconfiguring the world";
const ENLISTING: &str = "joining a world that works";
/// How long after the end of its patience a rank may still say what it decides, and hear what was decided.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long the store may take to say who waits.
const ANSWER: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use phalanx_core::store::{Doubt, Home, Limits, Refusal, Reply, Request, StoreError, Verb};

    use super::*;
    use crate::groups::Place;
    use crate::store::LocalStore;

    fn meet(store: &Store, size: usize) -> Vec<World> {
        let join = |rank| World::join(store.clone(), &WorldOptions::new(rank, size)).expect("all come");
        side_by_side((0..size).map(|rank| Box::new(move || join(rank)) as Box<_>).collect())
    }

    fn side_by_side<R: Send>(acts: Vec<Box<dyn FnOnce() -> R + Send + '_>>) -> Vec<R> {
        thread::scope(|scope| {
            let acts: Vec<_> = acts.into_iter().map(|act| scope.spawn(act)).collect();
            acts.into_iter().map(|act| act.join().expect("no panic")).collect()
        })
    }

    #[test]
    fn ranks_go_on_without_the_lost_and_with_newcomers() {
        let store = Store::new(LocalStore::new(Limits::default()));
        let worlds = meet(&store, 3);
        let newcomer = || World::enlist(&store, &WorldOptions::new(0, 1).timeout(Duration::MAX));
        let change = |world: World| {
            while world.waiting().expect("a store") == 0 {
                thread::yield_now();
            }
            world.reconfigure(&[1], Duration::MAX)
        };
        // As where the clock of a rank is an hour ahead.
        let before = worlds[0].registry().met_ns().map(|met| met + 3_600_000_000_000);
        worlds.iter().for_each(|world| world.registry().sit(Place { rank: world.rank(), size: 3, met_ns: before }));
        let [first, lost, third]: [World; 3] = worlds.try_into().expect("three");
        let changed = side_by_side(vec![
            Box::new(move || change(third)) as Box<dyn FnOnce() -> _ + Send>,
            Box::new(move || change(first)),
            Box::new(newcomer),
        ]);
        let mut changed: Vec<World> = changed.into_iter().map(|world| world.expect("elected")).collect();
        changed.sort_by_key(World::rank);
        for (rank, world) in changed.iter().enumerate() {
            assert_eq!((world.rank(), world.size(), world.survivors(), world.epoch()), (rank, 3, 2, 1));
            assert_eq!(world.members()[2].pid(), std::process::id());
            let local_ranks: Vec<usize> = world.members().iter().map(|member| member.local_rank()).collect();
            assert_eq!(local_ranks, [0, 2, 1], "who stays keeps its own, and the newcomer has none of theirs");
            assert_eq!(world.registry().met_ns(), changed[0].registry().met_ns());
        }
        assert!(changed[0].registry().met_ns() > before);
        let error = lost.reconfigure(&[], Duration::from_millis(10)).expect_err("it was given up");
        let told = "reconfiguring the world: the world went on without rank 1: with ranks 0, 2";
        assert_eq!(error.to_string(), told);
        side_by_side(
            changed.into_iter().map(|world| Box::new(move || drop(world.group().expect("all"))) as Box<_>).collect(),
        );
    }

    #[test]
    fn a_rank_that_does_not_come_is_left_behind() {
        let store = Store::new(LocalStore::new(Limits::default()));
        let worlds = meet(&store, 2);
        let [first, second]: [World; 2] = worlds.try_into().expect("two");
        first.store().set("kept", "over changes").expect("room");
        let alone = first.reconfigure(&[], Duration::from_millis(50)).expect("it may go on alone");
        assert_eq!((alone.size(), alone.survivors()), (1, 1));
        assert_eq!(alone.store().get("kept").expect("it is there"), b"over changes");
        assert!(second.reconfigure(&[], PATIENCE).is_err());
        let waiting = WorldOptions::new(0, 1).timeout(Duration::from_millis(30));
        let error = World::enlist(&store, &waiting).expect_err("nobody changes the world");
        assert_eq!(
            error.to_string(),
            "joining a world that works: the world of job default did not change within 30ms"
        );
    }

    #[test]
    fn a_rank_that_names_itself_as_lost_is_here_all_the_same() {
        let store = Store::new(LocalStore::new(Limits::default()));
        let [first, second] = <[World; 2]>::try_from(meet(&store, 2)).expect("two");
        let alone = first.reconfigure(&[0, 1], PATIENCE).expect("it is here");
        assert_eq!((alone.rank(), alone.size()), (0, 1));
        let error = second.reconfigure(&[], PATIENCE).expect_err("it was given up");
        assert_eq!(error.to_string(), "reconfiguring the world: the world went on without rank 1: with rank 0");
    }

    #[test]
    fn a_newcomers_time_runs_from_when_it_began() {
        let store = Store::new(LocalStore::new(Limits::default()));
        let began = Instant::now();
        let long_ago = began.checked_sub(PATIENCE).expect("clocks reach back a minute");
        let late = WorldOptions::new(0, 1).timeout(PATIENCE).began(long_ago);
        let error = World::enlist(&store, &late).expect_err("its time is over");
        assert!(error.to_string().ends_with("did not change within 60s"), "{error}");
        assert!(began.elapsed() < PATIENCE, "it has waited for {:?}", began.elapsed());
    }

    /// A store that cannot list its keys, and loses the answer to every other decision with the connection.
    struct Odd {
        home: LocalStore,
        has_lost: AtomicBool,
    }

    impl Home for Odd {
        fn ask(&self, request: Request, timeout: Duration) -> std::result::Result<Reply, StoreError> {
            let verb = request.verb();
            if verb == Verb::ListKeys {
                return Err(StoreError::Refused { verb, refusal: Refusal::Unsupported { store: self.describe() } });
            }
            let decides = matches!(&request, Request::CompareSet { key, .. } if key.as_bytes().ends_with(b"outcome"));
            let reply = self.home.ask(request, timeout)?;
            if decides && !self.has_lost.fetch_xor(true, Ordering::Relaxed) {
                return Err(StoreError::Lost { verb, detail: "it broke".to_owned(), doubt: Doubt::Unknown });
            }
            Ok(reply)
        }

        fn describe(&self) -> String {
            "an odd store".to_owned()
        }
    }

    #[test]
    fn a_newcomer_that_was_killed_while_it_waited_stays_out() {
        let store = Store::new(LocalStore::new(Limits::default()));
        let [world] = <[World; 1]>::try_from(meet(&store, 1)).expect("one");
        let killed = Entry { token: [9; 16], seat: None, card: Card::of_this_process(None, false).encode() };
        Changes::new(world.base(), moment::after(PATIENCE)).enter(1, &killed).expect("room");
        let change = move || {
            while world.waiting().expect("a store") < 2 {
                thread::yield_now();
            }
            world.reconfigure(&[], PATIENCE)
        };
        let newcomer = || World::enlist(&store, &WorldOptions::new(0, 1).timeout(PATIENCE));
        for world in side_by_side(vec![Box::new(change) as Box<dyn FnOnce() -> _ + Send>, Box::new(newcomer)]) {
            let world = world.expect("elected");
            assert_eq!((world.size(), world.survivors()), (2, 1));
        }
    }

    #[test]
    fn what_fails_once_it_is_decided_makes_nobody_leave() {
        let home = LocalStore::new(Limits::default());
        let store = Store::new(Odd { home, has_lost: AtomicBool::new(false) });
        let mut world = World::join(store, &WorldOptions::new(0, 1)).expect("all come");
        for epoch in 1..=4 {
            world = world.reconfigure(&[], PATIENCE).expect("it is decided");
            assert_eq!((world.size(), world.epoch(), world.waiting().expect("a store")), (1, epoch, 0));
        }
    }

    const PATIENCE: Duration = Duration::from_secs(60);
}
