//! Faults at random: a seed says which ranks are killed or stopped, or how the network is cut, and when. All survivors must say
//! the same, and name those whom it really befell.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::hosts::Hosts;
use crate::times::{self, Times};
use crate::world::{Ground, World};
use crate::{LATE, SIZE};

#[test]
fn all_survivors_name_the_same_true_culprits() {
    let runs = std::env::var("PHALANX_TEST_CAMPAIGN").ok().and_then(|runs| runs.parse().ok()).unwrap_or(8);
    let seed = fastrand::u64(..);
    let faults = (0..runs).map(|run| Fault::any(&mut Rng::with_seed(seed.wrapping_add(run))));
    let (slow, quick): (Vec<Fault>, Vec<Fault>) = faults.partition(|fault| fault.is_slow());
    let ledger = Ledger::default();
    quick.iter().for_each(|fault| ledger.add(fault, fault.befall()));
    // These are only waited for, so several can be at once.
    let slow = Mutex::new(slow.into_iter());
    let next = || slow.lock().expect("no panic").next();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(fault) = next() {
                    ledger.add(&fault, fault.befall());
                }
            });
        }
    });
    ledger.close(seed);
}

/// What befalls a world, and when.
#[derive(Clone, Debug)]
struct Fault {
    kind: Kind,
    ground: Ground,
    /// How many rounds are played before.
    rounds: u32,
    /// How long after that, so that it strikes anywhere in one.
    after: Duration,
}

#[derive(Clone, Debug)]
enum Kind {
    /// One after the other, with so much time between them.
    Kill(Vec<usize>, Duration),
    Stop(usize),
    /// Each rank is on one of two hosts; these hear nothing.
    Cut {
        homes: Vec<usize>,
        deaf: Vec<usize>,
    },
}

/// What one rank says of the failure.
#[derive(Debug)]
struct Said {
    rank: usize,
    took: Duration,
    verdict: String,
    culprits: String,
}

impl Fault {
    fn any(random: &mut Rng) -> Fault {
        let mut ranks: Vec<usize> = (0..SIZE).collect();
        random.shuffle(&mut ranks);
        let kind = match random.u8(..10) {
            0..6 => {
                ranks.truncate(random.usize(1..SIZE));
                Kind::Kill(ranks, Duration::from_micros(if random.bool() { random.u64(..2000) } else { 0 }))
            }
            6..8 => Kind::Stop(ranks[0]),
            _ => {
                let split = random.usize(1..SIZE);
                let homes = (0..SIZE).map(|rank| usize::from(ranks[..split].contains(&rank))).collect();
                let deaf = [vec![0], vec![1], vec![0, 1]][random.usize(..3)].clone();
                Kind::Cut { homes, deaf }
            }
        };
        let ground = match kind {
            Kind::Cut { .. } => Ground::Tcp,
            _ => [Ground::Segment, Ground::Tcp, Ground::Mixed][random.usize(..3)],
        };
        Fault { kind, ground, rounds: random.u32(1..60), after: Duration::from_micros(random.u64(..3000)) }
    }

    fn is_slow(&self) -> bool {
        !matches!(self.kind, Kind::Kill(..))
    }

    /// Lets it happen to a world; nothing where this system has no hosts to cut.
    fn befall(&self) -> Option<Vec<Said>> {
        match &self.kind {
            Kind::Kill(victims, between) => {
                let mut world = self.playing(World::start_on(self.ground, "loop", SIZE));
                let struck = world.kill(&victims[..1]);
                for victim in &victims[1..] {
                    wait(*between);
                    world.kill(&[*victim]);
                }
                Some(hear_all(world, victims, struck))
            }
            Kind::Stop(victim) => {
                let world = self.playing(World::start_on(self.ground, "hasty loop", SIZE));
                let struck = Instant::now();
                world.stop(*victim);
                Some(hear_all(world, &[*victim], struck))
            }
            Kind::Cut { homes, deaf } => {
                let hosts = Hosts::connected(2)?;
                let world = self.playing(World::start_between(&hosts, "loop", homes));
                let struck = Instant::now();
                hosts.deafen(deaf);
                Some(hear_all(world, &[], struck))
            }
        }
    }

    /// The world in the middle of its work.
    fn playing(&self, mut world: World) -> World {
        world.tell_all(&self.rounds.to_string());
        (0..SIZE).for_each(|rank| world.expect(rank, "played"));
        wait(self.after);
        world
    }

    /// Whether the ranks agree, as far as they can reach each other, and name nobody whom nothing befell.
    fn is_told_by(&self, said: &[Said]) -> bool {
        said.iter().all(|one| {
            let same = |other: &Said| self.cannot_reach(one.rank, other.rank) || one.verdict == other.verdict;
            self.is_true(one) && said.iter().all(same)
        })
    }

    fn is_true(&self, said: &Said) -> bool {
        let culprits: Vec<usize> = said.culprits.split(' ').filter_map(|rank| rank.parse().ok()).collect();
        match &self.kind {
            // Those who died later may not have been missed when it was told.
            Kind::Kill(victims, _) => !culprits.is_empty() && culprits.iter().all(|rank| victims.contains(rank)),
            Kind::Stop(victim) => culprits == [*victim],
            Kind::Cut { homes, deaf } => {
                let unheard = match deaf[..] {
                    [one] => 1 - one,
                    _ => 1 - homes[said.rank],
                };
                culprits == (0..SIZE).filter(|&rank| homes[rank] == unheard).collect::<Vec<_>>()
            }
        }
    }

    fn cannot_reach(&self, one: usize, other: usize) -> bool {
        matches!(&self.kind, Kind::Cut { homes, deaf } if deaf.len() == 2 && homes[one] != homes[other])
    }

    fn title(&self) -> &'static str {
        match &self.kind {
            Kind::Kill(victims, _) => ["one rank is killed", "two are killed", "three are killed"][victims.len() - 1],
            Kind::Stop(_) => "one rank is stopped",
            Kind::Cut { deaf, .. } if deaf.len() == 2 => "the network is cut in both directions",
            Kind::Cut { .. } => "the network is cut in one direction",
        }
    }

    /// When it must be known.
    fn bound(&self) -> Duration {
        match (&self.kind, self.ground) {
            (Kind::Kill(..), Ground::Segment) => Duration::from_millis(100),
            (Kind::Kill(..), _) => Duration::from_millis(350),
            // The calls' own deadline, which comes before anybody is given up.
            (Kind::Stop(_), _) => Duration::from_secs(2),
            (Kind::Cut { .. }, _) => Duration::from_millis(3250),
        }
    }
}

/// What all ranks say that live and run, and in the end those who were stopped meanwhile.
fn hear_all(world: World, victims: &[usize], struck: Instant) -> Vec<Said> {
    let hear = |rank| {
        let (told, verdict) = world.hear(rank, "failed");
        Said { rank, took: told.saturating_duration_since(struck), verdict, culprits: world.hear(rank, "culprits").1 }
    };
    let said = world.others(victims).map(hear).collect();
    drop(world);
    said
}

/// To the microsecond, which a sleep is not.
fn wait(span: Duration) {
    let until = Instant::now() + span;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// What became of all faults of one kind over one transport.
struct Account {
    times: Times,
    agreed: usize,
    bound: Duration,
}

#[derive(Default)]
struct Ledger {
    accounts: Mutex<BTreeMap<(&'static str, &'static str), Account>>,
    quarrels: Mutex<Vec<String>>,
}

impl Ledger {
    fn add(&self, fault: &Fault, said: Option<Vec<Said>>) {
        let Some(said) = said else { return };
        let kind = (fault.title(), fault.ground.name());
        let mut accounts = self.accounts.lock().expect("no panic");
        let account = accounts.entry(kind).or_insert_with(|| Account {
            times: Times::of(kind.0, kind.1),
            agreed: 0,
            bound: fault.bound(),
        });
        account.times.add(said.iter().map(|said| said.took));
        if fault.is_told_by(&said) {
            account.agreed += 1;
        } else {
            self.quarrels.lock().expect("no panic").push(format!("{fault:?}: {said:#?}"));
        }
    }

    /// Writes a row for each kind; fails where ranks said different things or waited too long.
    fn close(self, seed: u64) {
        let quarrels = self.quarrels.into_inner().expect("no panic");
        for (_, Account { mut times, agreed, bound }) in self.accounts.into_inner().expect("no panic") {
            let (runs, [_, _, longest]) = (times.runs(), times.spread());
            let overrun = times::readable(longest.saturating_sub(bound));
            times.write(&format!(" {agreed} of {runs} | {overrun} |"));
            assert!(longest < bound + LATE, "{times:?}, seed {seed}");
        }
        assert!(quarrels.is_empty(), "seed {seed}: {}", quarrels.join("\n"));
    }
}

/// So many worlds wait for a fault to be known.
const AT_ONCE: usize = 4;
