//! Worlds of threads over stores: who meets whom, what each knows of the others, and how they part.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use phalanx_comm::rendezvous::{World, WorldOptions};
use phalanx_comm::secure::{Claim, JobKey, JobName, Session};
use phalanx_comm::store::{ClientOptions, LocalStore, ServerOptions, StoreServer, TcpStore};
use phalanx_core::store::{Limits, Store};
use phalanx_core::{Error, Result};

const LONG: Duration = Duration::from_secs(60);

fn store() -> Store {
    Store::new(LocalStore::new(Limits::default()))
}

fn options(rank: usize, size: usize) -> WorldOptions {
    WorldOptions::new(rank, size).timeout(LONG)
}

/// Has every rank of `size` do `rank` on a thread of its own; what each returns, in rank order.
fn ranks<R: Send>(size: usize, rank: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let rank = &rank;
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..size).map(|number| scope.spawn(move || rank(number))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn missing(error: &Error) -> &[usize] {
    if let Error::Setup(setup) = error { &setup.missing } else { panic!("{error}") }
}

#[test]
fn a_world_knows_who_and_where_its_ranks_are() {
    let store = store();
    let job = JobName::new("a.job").unwrap();
    ranks(5, |rank| {
        let world = World::join(store.clone(), &options(rank, 5).job(job.clone()).epoch(3)).unwrap();
        assert_eq!((world.rank(), world.size(), world.epoch(), world.job()), (rank, 5, 3, &job));
        // All threads live in one process, and so on one host.
        assert_eq!((world.local_rank(), world.local_size(), world.node(), world.nodes()), (rank, 5, 0, 1));
        assert!(world.layout().is_one_host() && world.layout().rank() == rank);
        assert_eq!(world.members().len(), 5);
        let pid = std::process::id();
        assert!(world.members().iter().all(|member| member.pid() == pid && !member.host_name().is_empty()));
        assert_eq!(world.members()[4].local_rank(), 4);

        world.store().set(&rank.to_string(), rank.to_string()).unwrap();
        assert_eq!(world.store().get(&((rank + 1) % 5).to_string()).unwrap(), ((rank + 1) % 5).to_string().as_bytes());
        for round in 0..20 {
            world.barrier(if round % 2 == 0 { "even" } else { "odd" }, LONG).unwrap();
        }
        world.leave(LONG).unwrap();
    });
}

#[test]
fn the_launchers_local_rank_wins() {
    let store = store();
    let local = ranks(3, |rank| {
        let options = options(rank, 3).local_rank(2 - rank).local_size(3);
        let world = World::join(store.clone(), &options).unwrap();
        (world.local_rank(), world.members().iter().map(|member| member.local_rank()).collect::<Vec<_>>())
    });
    assert_eq!(local, [(2, vec![2, 1, 0]), (1, vec![2, 1, 0]), (0, vec![2, 1, 0])]);
}

#[test]
fn epochs_and_jobs_on_one_store_do_not_meet() {
    let store = store();
    let late = |rank, epoch: u32, job: &str| {
        let options = options(rank, 2).epoch(epoch).job(JobName::new(job).unwrap());
        World::join(store.clone(), &options.timeout(Duration::from_millis(50)))
    };
    // Rank 1 of an old epoch, and one of another job, were here before.
    assert_eq!(missing(&late(1, 0, "a").unwrap_err()), [0]);
    assert_eq!(missing(&late(1, 1, "b").unwrap_err()), [0]);
    assert_eq!(missing(&late(0, 1, "a").unwrap_err()), [1]);

    let worlds = ranks(2, |rank| World::join(store.clone(), &options(rank, 2).epoch(2)).unwrap());
    let older = ranks(2, |rank| World::join(store.clone(), &options(rank, 2).epoch(1)).unwrap());
    worlds[0].store().set("a key", "new").unwrap();
    assert_eq!(older[1].store().find("a key"), Ok(None));
    assert_eq!(worlds[1].store().get("a key").unwrap(), b"new");
}

#[test]
fn a_rank_taken_twice_is_told_by_host_and_process() {
    let store = store();
    let ends = ranks(3, |number| World::join(store.clone(), &options(number.min(1), 2)).map(drop));
    let pid = std::process::id();
    let told = |end: &Result<()>| {
        let text = end.as_ref().unwrap_err().to_string();
        assert!(text.starts_with("joining the world: rank 1 came twice: as "), "{text}");
        assert_eq!(text.matches(&format!("pid {pid}")).count(), 2, "{text}");
    };
    // Rank 0 and the first of the two may have met before the second came.
    ends.iter().filter(|end| end.is_err()).for_each(told);
    assert!(ends[1..].iter().any(Result::is_err), "{ends:?}");
}

#[test]
fn a_barrier_names_the_ranks_that_do_not_come() {
    let store = store();
    let errors = ranks(4, |rank| {
        let world = World::join(store.clone(), &options(rank, 4)).unwrap();
        let timeout = if rank == 1 { Duration::from_millis(100) } else { LONG };
        (rank % 3 < 2).then(|| world.barrier("b", timeout).unwrap_err())
    });
    let text = "barrier \"b\": rank 2 of 4 did not come within 100ms; rank 1 was the first to give up";
    assert!(errors[2].is_none());
    errors
        .iter()
        .flatten()
        .for_each(|error| assert_eq!((error.to_string().as_str(), missing(error)), (text, &[2][..])));
}

/// The lines that were logged, for the one test that reads them.
struct Lines(Mutex<Vec<String>>);

impl log::Log for Lines {
    fn enabled(&self, data: &log::Metadata<'_>) -> bool {
        data.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        self.0.lock().unwrap().push(record.args().to_string());
    }

    fn flush(&self) {}
}

static LINES: Lines = Lines(Mutex::new(Vec::new()));

#[test]
fn while_ranks_are_missing_one_rank_says_which() {
    log::set_logger(&LINES).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let store = store();
    let interval = Duration::from_millis(20);
    ranks(2, |rank| {
        let options = options(rank, 23).timeout(10 * interval).interval(interval);
        assert_eq!(missing(&World::join(store.clone(), &options).unwrap_err()).len(), 21);
    });
    let lines = LINES.0.lock().unwrap();
    // Other tests have other sizes.
    let ours: Vec<_> = lines.iter().filter(|line| line.contains(" of 23 (")).collect();
    assert!((1..=10).contains(&ours.len()), "{ours:?}");
    assert!(ours.iter().all(|line| line.starts_with("world: waiting for ranks ")), "{ours:?}");
    assert!(ours.last().unwrap().starts_with("world: waiting for ranks 2-22 of 23 ("), "{ours:?}");
}

#[test]
fn nonsense_is_refused_before_anybody_is_asked() {
    let store = store();
    let error = World::join(store.clone(), &options(2, 2)).unwrap_err();
    assert_eq!(error.to_string(), "rank: 2 is not below the group size 2");
    assert_eq!(store.num_keys(), Ok(0));
}

/// A store of rank 0's own, as it stands behind a world that processes make.
struct Served {
    key: JobKey,
    server: StoreServer,
}

impl Served {
    fn new(size: u32) -> Served {
        let key = JobKey::mint().unwrap();
        let options = ServerOptions::new("127.0.0.1:0".parse().unwrap()).key(key.clone()).world(size);
        Served { key, server: StoreServer::start(options).unwrap() }
    }

    fn reach(&self, rank: usize, size: usize) -> Store {
        let claim = Claim::new(JobName::default(), 0, Session::mint().unwrap());
        let claim = claim.member(rank as u32, size as u32).unwrap();
        let options = ClientOptions::new(self.server.address().clone()).key(self.key.clone()).claim(claim);
        Store::new(TcpStore::connect(options).unwrap())
    }
}

/// Says when it was dropped.
struct Watched {
    _server: StoreServer,
    gone: Arc<AtomicBool>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::SeqCst);
    }
}

/// What each rank does with its world, of which rank 0 serves the store; and when the server ended.
fn served<R: Send>(size: usize, rank: impl Fn(World, &AtomicBool) -> R + Sync) -> (Vec<R>, Arc<AtomicBool>) {
    let served = Served::new(size as u32);
    let mut stores: Vec<Store> = (0..size).map(|rank| served.reach(rank, size)).collect();
    let gone = Arc::new(AtomicBool::new(false));
    let (rank, gone_here) = (&rank, &*gone);
    let ends = thread::scope(|scope| {
        let others = stores.split_off(1).into_iter().enumerate().map(|(before, store)| {
            scope.spawn(move || rank(World::join(store, &options(before + 1, size)).unwrap(), gone_here))
        });
        let others: Vec<_> = others.collect();
        let watched = Watched { _server: served.server, gone: Arc::clone(&gone) };
        let first = rank(World::host(stores.remove(0), &options(0, size), watched).unwrap(), gone_here);
        let others = others.into_iter().map(|other| other.join().unwrap());
        std::iter::once(first).chain(others).collect()
    });
    (ends, gone)
}

#[test]
fn who_serves_the_store_leaves_last() {
    let (together, served_until) = (Barrier::new(3), &AtomicBool::new(false));
    let (_, gone) = served(3, |world, gone| {
        together.wait();
        if world.rank() == 2 {
            // Rank 0 is leaving by now, or will be: the store is here as long as this rank is.
            for round in 0..50 {
                world.store().set("round", round.to_string()).unwrap();
            }
            served_until.store(!gone.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        world.leave(LONG).unwrap();
    });
    assert!(served_until.load(Ordering::SeqCst) && gone.load(Ordering::SeqCst));
}

#[test]
fn a_dropped_world_leaves_as_well() {
    let began = Instant::now();
    let (_, gone) = served(3, |world, _| drop(world));
    assert!(gone.load(Ordering::SeqCst));
    assert!(began.elapsed() < Duration::from_secs(5), "nobody had to be waited for, yet it took {:?}", began.elapsed());
}

#[test]
fn leaving_names_the_ranks_that_stay() {
    let together = Barrier::new(2);
    let (ends, _) = served(2, |world, _| {
        if world.rank() == 0 {
            let end = world.leave(Duration::from_millis(100));
            together.wait();
            return Some(end);
        }
        together.wait();
        None
    });
    let error = ends[0].clone().unwrap().unwrap_err();
    assert_eq!(missing(&error), [1], "{error}");
}

#[test]
fn all_hear_who_is_missing_though_the_store_ends_with_the_first_that_fails() {
    let served = Served::new(4);
    let stores: Vec<Store> = (0..3).map(|rank| served.reach(rank, 4)).collect();
    let mut server = Some(served.server);
    let short = options(0, 4).timeout(Duration::from_millis(500));
    let ends: Vec<Error> = thread::scope(|scope| {
        let ranks: Vec<_> = stores
            .into_iter()
            .enumerate()
            .map(|(rank, store)| {
                let server = if rank == 0 { server.take() } else { None };
                let short = &short;
                scope.spawn(move || match server {
                    Some(server) => World::host(store, short, server).map(drop),
                    None => World::join(store, &options(rank, 4)).map(drop),
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap().unwrap_err()).collect()
    });
    assert!(ends.iter().all(|end| missing(end) == [3] && *end == ends[0]), "{ends:?}");
}

/// Rank 0 serves the store and is killed: nobody waits for that longer than it has said.
#[test]
fn changes_over_a_store_that_is_gone_end_in_time() {
    let server = StoreServer::start(ServerOptions::new("127.0.0.1:0".parse().unwrap()).world(2)).unwrap();
    let reach = || Store::new(TcpStore::connect(ClientOptions::new(server.address().clone())).unwrap());
    let [first, other] = <[World; 2]>::try_from(ranks(2, |rank| match rank {
        0 => World::host(reach(), &options(0, 2), ()).unwrap(),
        _ => World::join(reach(), &options(1, 2)).unwrap(),
    }))
    .unwrap();
    let newcomers = reach();
    drop(server);
    let short = Duration::from_millis(500);
    let timed = |act: &mut dyn FnMut()| {
        let began = Instant::now();
        act();
        began.elapsed()
    };
    thread::scope(|scope| {
        let enlisted =
            scope.spawn(|| timed(&mut || drop(World::enlist(&newcomers, &options(0, 1).timeout(short)).unwrap_err())));
        let asked = scope.spawn(|| timed(&mut || drop(first.waiting().unwrap_err())));
        let mut other = Some(other);
        let reconfigured = timed(&mut || drop(other.take().unwrap().reconfigure(&[0], short).unwrap_err()));
        assert!(reconfigured < Duration::from_millis(1500), "{reconfigured:?}");
        let enlisted = enlisted.join().unwrap();
        assert!(enlisted < Duration::from_millis(1500), "{enlisted:?}");
        let asked = asked.join().unwrap();
        assert!(asked < Duration::from_secs(4), "{asked:?}");
    });
    // Its process would be dead: it waits for nobody.
    std::mem::forget(first);
}
