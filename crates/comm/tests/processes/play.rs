//! The side of the ranks: what each does in its process.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use phalanx_comm::store::{ClientOptions, FileStore, FileStoreOptions, TcpStore};
use phalanx_comm::{Door, Network, Processes};
use phalanx_core::store::Store;
use phalanx_core::{Error, Group, GroupOptions, ReduceOp};

use crate::{churn, containers, forked, hardship, lending, quarrels};

/// What a rank is told by its environment.
pub(crate) const PLAY: &str = "PHALANX_TEST_PLAY";
pub(crate) const DOOR: &str = "PHALANX_TEST_DOOR";
pub(crate) const RANK: &str = "PHALANX_TEST_RANK";
pub(crate) const RANKS: &str = "PHALANX_TEST_RANKS";
pub(crate) const GROUND: &str = "PHALANX_TEST_GROUND";
pub(crate) const ADDRESS: &str = "PHALANX_TEST_ADDRESS";
/// Stands before everything that a rank says.
pub(crate) const MARK: &str = "@ ";

/// Plays this rank's part, if this process is one.
pub(crate) fn play() {
    let Ok(play) = std::env::var(PLAY) else {
        return;
    };
    match play.as_str() {
        "loop" => in_a_loop(&join(PATIENCE)),
        "hasty loop" => in_a_loop(&join(Duration::from_secs(2))),
        "leave" => at_odds(join(PATIENCE), drop),
        "vanish" => at_odds(join(PATIENCE), |_group| std::process::exit(0)),
        "exec" => at_odds(join(PATIENCE), |_group| {
            say("another program");
            panic!("sleep: {}", Command::new("sleep").arg("60").exec());
        }),
        "panic" => at_odds(join(PATIENCE), |_group| std::panic::panic_any("planted")),
        "crash" => at_odds(join(PATIENCE), hardship::crash),
        "pause" => with_a_pause(&join(PATIENCE)),
        "hasty" => with_a_pause(&join(Duration::from_secs(2))),
        "rounds" => in_rounds(&join(PATIENCE)),
        "crowded" => hardship::crowded(),
        "interrupted" => hardship::interrupted(),
        "idle" => hardship::idle(&join(Duration::from_secs(2))),
        "fork" => forked::fork(join(PATIENCE)),
        "lend" => lending::lend(&join(Duration::from_secs(2))),
        "late" => hardship::late(&join(PATIENCE)),
        "cramped" => hardship::cramped(),
        "curbed" => hardship::curbed(),
        "greedy" => hardship::greedy(&join(PATIENCE)),
        "scarce" => hardship::scarce(1),
        "scarce at home" => hardship::scarce(0),
        "hosting" => hardship::hosting(),
        "beside a store" => hardship::beside_a_store(),
        "abort" => at_odds(join(PATIENCE), |group| {
            group.abort("the operator said so");
            failed(&Error::aborted("rank 1: the operator said so"));
        }),
        "queue" => with_a_queue(join(PATIENCE)),
        "census" => census(once),
        "bereft census" => census(until_it_fails),
        "churn" => churn::churn(false),
        "newcomer" => churn::churn(true),
        "member" => containers::member(),
        "recluse" => containers::recluse(),
        "quarrel" => quarrels::quarrel(&join(PATIENCE)),
        other => panic!("no play is called {other:?}"),
    }
}

/// This rank, how many there are, and where they meet.
pub(crate) fn own_number() -> (usize, usize, String) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok()).expect("a number");
    (number(RANK), number(RANKS), std::env::var(DOOR).expect("a name"))
}

/// Whether ranks of one host reach each other over TCP too.
pub(crate) fn is_on_tcp() -> bool {
    std::env::var(GROUND).as_deref() == Ok("Tcp")
}

/// Joins, and plays once with all the others.
pub(crate) fn join(timeout: Duration) -> Group {
    let (rank, size, door) = own_number();
    let options = GroupOptions::default().timeout(timeout);
    let group = match std::env::var(GROUND).expect("a ground").as_str() {
        "Tcp" | "Mixed" => placed(Network::new(rank, size, store(&door)), size).options(options).join(PATIENCE),
        _ => Processes::new(rank, size, Door::named(door), [9; 16]).options(options).join(PATIENCE),
    };
    let group = group.unwrap_or_else(|error| panic!("{error}"));
    // Where a rank comes to its end at once, the others may hear of it before they know that all have come.
    let _ = group.barrier();
    group
}

/// What is said of a rank that never came to the first operation after joining.
pub(crate) fn missing(rank: usize) -> String {
    let source = include_str!("play.rs");
    let line = 1 + source.lines().position(|line| line.contains("let _ = group.barrier();")).expect("the call above");
    format!(
        "all_reduce (operation 1) not finished after 2s; waiting for rank {rank}, whose last was barrier (operation 0, called at \
         {}:{line}:19)",
        file!()
    )
}

/// At the address of this rank's host, where it has one of its own; on mixed ground two ranks share memory.
pub(crate) fn placed(network: Network, size: usize) -> Network {
    let network = match std::env::var(GROUND).as_deref() {
        Ok("Mixed") => network.hosts((0..size as u32).map(|rank| rank / 2).collect()),
        _ => network.shared_memory(false),
    };
    match std::env::var(ADDRESS) {
        Ok(address) => network.address(address.parse().expect("an address")).insecure(true),
        Err(_) => network,
    }
}

/// The store at an address, or in a file.
pub(crate) fn store(address: &str) -> Store {
    if address.starts_with('/') {
        return Store::new(FileStore::open(address, FileStoreOptions::new()).expect("a file"));
    }
    let options = ClientOptions::new(address.parse().expect("an address"));
    Store::new(TcpStore::connect(options).expect("the test's server"))
}

/// Small and large operations and messages, until one fails.
fn in_a_loop(group: &Group) {
    let told: u32 = listen().parse().expect("a number of rounds");
    let (next, before) = ((group.rank() + 1) % group.size(), (group.rank() + group.size() - 1) % group.size());
    for round in 0_u32.. {
        let ended = match round % 4 {
            0 => group.all_reduce(&mut [1.0_f64], ReduceOp::Sum),
            1 => group.all_reduce(&mut vec![1.0_f32; 5000], ReduceOp::Sum),
            2 => group.all_reduce(&mut vec![1.0_f32; 100_000], ReduceOp::Sum),
            _ => group.send(&[round], next, 0).and_then(|()| group.recv(&mut [0_u32], before, 0).map(drop)),
        };
        if round == told {
            say("played");
        }
        if let Err(error) = ended {
            return failed(&error);
        }
    }
}

/// Rank 1 does something odd, the others play on.
fn at_odds(group: Group, odd: fn(Group)) {
    if group.rank() == 1 {
        return odd(group);
    }
    loop {
        if let Err(error) = group.all_reduce(&mut [1_u32; 100], ReduceOp::Sum) {
            return failed(&error);
        }
    }
}

fn with_a_pause(group: &Group) {
    say("paused");
    listen();
    // A rank that was stopped may have all it needs of the first one.
    loop {
        if let Err(error) = group.all_reduce(&mut [1_u32; 100], ReduceOp::Sum) {
            return failed(&error);
        }
    }
}

/// Whenever it is told to, as many operations as it is told.
pub(crate) fn in_rounds(group: &Group) {
    say("ready");
    while let Ok(rounds) = listen().parse::<u32>() {
        for _ in 0..rounds {
            let mut data = vec![1_u32; 1000];
            if let Err(error) = group.all_reduce(&mut data, ReduceOp::Sum) {
                return failed(&error);
            }
            assert!(data.iter().all(|sum| *sum as usize == group.size()));
        }
        say("done");
    }
}

fn with_a_queue(group: Group) {
    let begin = |_| group.all_reduce_async(vec![1_u32; 10_000], ReduceOp::Sum).expect("a good call");
    let works: Vec<_> = (0..20).map(begin).collect();
    let expected = vec![group.size() as u32; 10_000];
    if group.rank() == 1 {
        return drop(group);
    }
    works.into_iter().for_each(|work| assert_eq!(work.wait().expect("all take part"), expected));
    say("got all");
    listen();
}

fn once(group: &Group) {
    drop(group.all_reduce_async(vec![1_u8; 100], ReduceOp::Sum).expect("a good call"));
    group.barrier().expect("all are here");
}

/// With a message under way that never comes.
fn until_it_fails(group: &Group) {
    let next = (group.rank() + 1) % group.size();
    let message = group.recv_async(vec![0_u8; 100_000], next, 9).expect("a good call");
    say("ready");
    while group.all_reduce(&mut vec![1_u8; 1_000_000], ReduceOp::Sum).is_ok() {}
    message.wait().expect_err("nobody sends it");
}

/// What this process has before it joins, and after it has played its part and left.
fn census(part: fn(&Group)) {
    let before = belongings();
    let group = join(PATIENCE);
    part(&group);
    assert_ne!(belongings(), before, "a group has something");
    drop(group);
    let left = settled(|| belongings().into_iter().filter(|thing| !before.contains(thing)).collect());
    say(&format!("left behind {left:?}"));
}

/// What stays of what is left: a thread that has ended, even one that was joined, is listed for a moment longer.
pub(crate) fn settled(left: impl Fn() -> Vec<String>) -> Vec<String> {
    let began = Instant::now();
    loop {
        let left = left();
        if left.is_empty() || began.elapsed() > LATE {
            return left;
        }
        thread::yield_now();
    }
}

/// Descriptors, mappings of shared segments, and threads.
pub(crate) fn belongings() -> Vec<String> {
    let names = |directory: &str| -> Vec<_> {
        fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path()).collect()
    };
    let open = names("/proc/self/fd").into_iter().filter_map(|fd| fs::read_link(fd).ok());
    let mut all: Vec<String> =
        open.map(|target| target.display().to_string()).filter(|name| !name.contains("/proc/")).collect();
    let maps = fs::read_to_string("/proc/self/maps").expect("the mappings of this process");
    all.extend(maps.lines().filter(|line| line.contains("memfd:")).map(str::to_owned));
    all.extend(names("/proc/self/task").into_iter().filter_map(|task| fs::read_to_string(task.join("comm")).ok()));
    all
}

/// Says of what the group failed, and stays until the test is done.
pub(crate) fn failed(error: &Error) {
    say(&format!("failed {}", first(error)));
    let culprits: Vec<String> = error.culprits().iter().map(ToString::to_string).collect();
    say(&format!("culprits {}", culprits.join(" ")));
    while !listen().is_empty() {}
}

/// The first failure of a group, whoever reports it.
pub(crate) fn first(error: &Error) -> &Error {
    match error {
        Error::Aborted(aborted) => aborted.cause.as_deref().map_or(error, first),
        other => other,
    }
}

pub(crate) fn say(what: &str) {
    let mut stdout = io::stdout().lock();
    let said = stdout.write_all(format!("{MARK}{what}\n").as_bytes()).and_then(|()| stdout.flush());
    said.expect("the test listens");
}

/// The next line from the test; empty when it has no more to say.
pub(crate) fn listen() -> String {
    let mut line = String::new();
    io::stdin().read_line(&mut line).expect("the test speaks");
    line.trim().to_owned()
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// What is left by now stays; the test still waits for the answer.
const LATE: Duration = Duration::from_secs(20);
