//! What ranks do in worlds that are hard: too few descriptors, one processor for all, signals all the time, a store that goes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use phalanx_comm::store::{ClientOptions, FileStore, FileStoreOptions, ServerOptions, StoreServer, TcpStore};
use phalanx_comm::{Door, Network, Processes};
use phalanx_core::store::Store;
use phalanx_core::{Error, Group, ReduceOp, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::play::{ADDRESS, DOOR, GROUND, PATIENCE, RANK, RANKS, failed, first, in_rounds, join, listen, placed, say};

/// With all others on one processor.
pub(crate) fn crowded() {
    let allowed = sched_getaffinity(None).expect("some processors");
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).expect("a processor"));
    sched_setaffinity(None, &one).expect("one of those allowed");
    in_rounds(&join(PATIENCE));
}

/// With a handler for a signal, so that system calls are interrupted.
pub(crate) fn interrupted() {
    let came = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&came)).expect("a signal");
    in_rounds(&join(PATIENCE));
    assert!(came.load(Ordering::Relaxed), "no signal came");
}

/// Rank 1 never calls what the others call.
pub(crate) fn idle(group: &Group) {
    say("ready");
    listen();
    if group.rank() != 1 {
        let error = group.all_reduce(&mut [1_u32; 100], ReduceOp::Sum).expect_err("rank 1 does not call");
        return failed(&error);
    }
    while !listen().is_empty() {}
}

/// Rank 1 comes when it is told to; the others have more to send than systems hold.
pub(crate) fn late(group: &Group) {
    say("ready");
    if group.rank() == 1 {
        listen();
    }
    let mut data = vec![1_u32; 8 << 20];
    if let Err(error) = group.all_reduce(&mut data, ReduceOp::Sum) {
        return failed(&error);
    }
    assert!(data.iter().all(|sum| *sum as usize == group.size()));
    say("done");
    while !listen().is_empty() {}
}

/// Rank 1 takes as much of the memory that peers can read as it needs for a large operation.
pub(crate) fn greedy(group: &Group) {
    say("ready");
    listen();
    if group.rank() == 1 {
        let mut buffer = group.buffer(256 << 20).expect("address space");
        buffer.as_bytes_mut().fill(1);
    }
    loop {
        if let Err(error) = group.all_reduce(&mut [1_u32; 1000], ReduceOp::Sum) {
            return failed(&error);
        }
    }
}

/// Ends in a way that leaves a core file, if the system lets it, in a directory that the test knows.
pub(crate) fn crash(group: Group) {
    let directory = cores(std::process::id());
    std::fs::create_dir(&directory).and_then(|()| std::env::set_current_dir(&directory)).expect("a new directory");
    let most = getrlimit(Resource::Core).maximum;
    setrlimit(Resource::Core, Rlimit { current: most, maximum: most }).expect("as much as is allowed");
    group.buffer(1 << 20).expect("address space").as_bytes_mut().fill(1);
    // Of its own it has enough that writing it takes a while.
    std::mem::forget(std::hint::black_box(vec![1_u8; 128 << 20]));
    say("crashing");
    std::process::abort();
}

/// Where a process leaves its core file.
pub(crate) fn cores(process: u32) -> PathBuf {
    std::env::temp_dir().join(format!("phalanx-cores-{process}"))
}

/// One rank has so few descriptors that joining fails somewhere: the one that lets the others in, or one that comes.
pub(crate) fn scarce(poor: usize) {
    in_want(poor, Resource::Nofile, |more| open_files() as u64 + more);
}

/// Rank 1 has so little room for memory that joining fails somewhere. What the language takes for its own small things, whose
/// want is the end of a process, is there.
pub(crate) fn cramped() {
    let mut reserve: Vec<Box<[u8; 4096]>> = (0..2048).map(|_| Box::new([1; 4096])).collect();
    // The last one keeps the system from having the others back.
    let _last = reserve.pop();
    drop(reserve);
    in_want(1, Resource::As, |more| address_space() + (more << 19));
}

/// Files of rank 0, which makes the memory that all share, may be so short only that joining fails.
pub(crate) fn curbed() {
    in_want(0, Resource::Fsize, |more| more << 20);
}

/// The poor rank has a little more of something each time, until joining succeeds. Whatever happens, both ranks are told of
/// it in their time, and nothing stays open.
fn in_want(poor: usize, resource: Resource, limit: impl Fn(u64) -> u64) {
    let is_poor = number(RANK) == poor;
    let most = getrlimit(resource);
    let (home, door) = home(&said(DOOR));
    for more in 0.. {
        // Descriptors that a library or the system opened once and keeps are counted as they are.
        let before = open_files();
        if is_poor {
            setrlimit(resource, Rlimit { current: Some(limit(more)), maximum: most.maximum }).expect("a lower limit");
        }
        let began = Instant::now();
        let joined = attempt(&home, &format!("{door}-{more}"));
        assert!(began.elapsed() < JOINING + SLACK, "joining took {:?}", began.elapsed());
        setrlimit(resource, most).expect("the limit before");
        match joined.and_then(|group| group.barrier()) {
            Ok(()) => return say(&format!("tried and joined after {more}")),
            Err(error) => assert!(matches!(first(&error), Error::Setup(_) | Error::Peer(_)), "{error:?}"),
        }
        let began = Instant::now();
        while open_files() > before {
            assert!(began.elapsed() < PATIENCE, "{} of {before} files are open", open_files());
            std::thread::yield_now();
        }
        say("tried");
        // The others try once more at the same time.
        if listen().is_empty() {
            return;
        }
    }
}

/// How much of it this process has, in bytes.
fn address_space() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("a file of numbers");
    let pages: u64 = pages.split(' ').next().and_then(|pages| pages.parse().ok()).expect("a number");
    pages * rustix::param::page_size() as u64
}

fn attempt(home: &Option<Store>, door: &str) -> Result<Group> {
    let (rank, size) = (number(RANK), number(RANKS));
    match home {
        Some(store) => placed(Network::new(rank, size, store.scope(door)), size).join(JOINING),
        None => Processes::new(rank, size, Door::named(door.to_owned()), [9; 16]).heap(1 << 20).join(JOINING),
    }
}

fn home(door: &str) -> (Option<Store>, String) {
    match said(GROUND).as_str() {
        "Tcp" | "Mixed" => (Some(crate::play::store(door)), "scarce".to_owned()),
        _ => (None, door.to_owned()),
    }
}

/// Rank 0 serves the store of all, and may be killed.
pub(crate) fn hosting() {
    let book = Store::new(FileStore::open(said(DOOR), FileStoreOptions::new()).expect("a file"));
    let server = (number(RANK) == 0).then(|| serve(&book));
    let store = served(&book);
    let (rank, size) = (number(RANK), number(RANKS));
    let group = placed(Network::new(rank, size, store.scope("ranks")), size).join(PATIENCE).expect("all come");
    say("ready");
    let error = loop {
        if let Err(error) = group.all_reduce(&mut [1_u32; 100], ReduceOp::Sum) {
            break error;
        }
    };
    say(&format!("lost {}", first(&error)));
    ask_in_time(&store);
    failed(&error);
    drop(server);
}

/// The last rank serves the store of the others, and is none of the group.
pub(crate) fn beside_a_store() {
    let book = Store::new(FileStore::open(said(DOOR), FileStoreOptions::new()).expect("a file"));
    let (rank, size) = (number(RANK), number(RANKS) - 1);
    if rank == size {
        let _server = serve(&book);
        say("ready");
        while !listen().is_empty() {}
        return;
    }
    let store = served(&book);
    let group = placed(Network::new(rank, size, store.scope("ranks")), size).join(PATIENCE).expect("all come");
    say("ready");
    listen();
    for _ in 0..100 {
        let mut data = [1_u32; 1000];
        group.all_reduce(&mut data, ReduceOp::Sum).expect("the ranks reach each other");
        assert_eq!(data, [size as u32; 1000]);
    }
    ask_in_time(&store);
    group.barrier().expect("the ranks reach each other");
    say("done");
    listen();
}

/// A call on a store, and whether it was answered.
type Ask = fn(&Store) -> bool;

/// Every call on a store that is gone ends with an error in its time, and says how much longer it took.
fn ask_in_time(store: &Store) {
    let store = store.with_timeout(SOON);
    let calls: [(&str, Ask); 4] = [
        ("set", |store| store.set("a", "b").is_ok()),
        ("get", |store| store.get("nothing").is_ok()),
        ("add", |store| store.add("number", 1).is_ok()),
        ("wait", |store| store.wait(&["nothing"]).is_ok()),
    ];
    for (name, call) in calls {
        let began = Instant::now();
        assert!(!call(&store), "{name} was done by nobody");
        let over = began.elapsed().saturating_sub(SOON);
        assert!(over < Duration::from_secs(2), "{name} took {over:?} too long");
        say(&format!("over {}", over.as_micros()));
    }
}

fn serve(book: &Store) -> StoreServer {
    let at = std::env::var(ADDRESS).unwrap_or_else(|_| "127.0.0.1".to_owned());
    let options = ServerOptions::new(format!("{at}:0").parse().expect("an address")).insecure(true);
    let server = StoreServer::start(options).expect("a free port");
    book.set("address", server.address().to_string()).expect("a file");
    server
}

fn served(book: &Store) -> Store {
    let address = String::from_utf8(book.get("address").expect("it is served")).expect("an address");
    let options = ClientOptions::new(address.parse().expect("an address")).insecure(true);
    Store::new(TcpStore::connect(options).expect("it is served"))
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a directory").count()
}

fn said(name: &str) -> String {
    std::env::var(name).expect("the test says it")
}

fn number(name: &str) -> usize {
    said(name).parse().expect("a number")
}

const SOON: Duration = Duration::from_secs(1);
/// How long ranks try to join, of which some cannot.
const JOINING: Duration = Duration::from_millis(500);
/// How much longer an end may be in coming on a machine that has other things to do.
const SLACK: Duration = Duration::from_secs(5);
