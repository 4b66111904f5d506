//! How a rank stands, as it is told while it works: to Prometheus over TCP, and to neighbours on this host.

mod strict;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use phalanx::{Joining, Neighbour, ReduceOp, World};
use strict::Samples;

const LONG: Duration = Duration::from_secs(60);

/// A job with a name and a store of its own.
struct Job {
    name: String,
    store: PathBuf,
}

impl Job {
    fn new(name: &str) -> Job {
        let name = format!("{name}-{}", std::process::id());
        Job { store: std::env::temp_dir().join(format!("phalanx-{name}")), name }
    }

    fn join(&self, rank: usize, size: usize) -> Joining {
        let Job { name, store } = self;
        Joining::url(&format!("file://{}?rank={rank}&world_size={size}&job={name}", store.display())).unwrap()
    }

    /// Its ranks as they answer now.
    fn ranks(&self) -> Vec<Neighbour> {
        let all = phalanx::neighbours(LONG).unwrap();
        all.into_iter().filter(|neighbour| neighbour.job == self.name).collect()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.store);
    }
}

fn scrape(address: SocketAddr) -> Samples {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
        "{head}"
    );
    Samples::read(page)
}

#[test]
fn a_rank_that_works_is_scraped() {
    let job = Job::new("scraped");
    let (begun, seen) = (Barrier::new(2), Barrier::new(2));
    let rank = |rank: usize| {
        let world = job.join(rank, 2).metrics("127.0.0.1:0".parse().unwrap()).join().unwrap();
        let group = world.group().unwrap();
        // So long that each is written down when it begins: a short one that waits for nobody takes no time that is counted.
        for _ in 0..10 {
            group.all_reduce(&mut [1.0_f32; 2048], ReduceOp::Sum).unwrap();
        }
        // Rank 1 comes to the barrier once rank 0 was seen to wait in it.
        if rank == 1 {
            begun.wait();
            look(&job);
        }
        let barrier = group.barrier_async().unwrap();
        if rank == 0 {
            begun.wait();
        }
        barrier.wait().unwrap();
        seen.wait();
        drop(group);
        let addresses: Vec<_> =
            job.ranks().iter().map(|rank| rank.account.as_ref().unwrap().metrics.unwrap()).collect();
        seen.wait();
        world.leave(LONG).unwrap();
        seen.wait();
        assert!(addresses.iter().all(|address| TcpStream::connect(address).is_err()));
        assert!(job.ranks().is_empty());
    };
    thread::scope(|scope| [0, 1].map(|number| scope.spawn(move || rank(number))).map(|rank| rank.join().unwrap()));
}

fn look(job: &Job) {
    let ranks = job.ranks();
    assert_eq!(ranks.iter().map(|rank| (rank.rank, rank.world_size)).collect::<Vec<_>>(), [(0, 2), (1, 2)]);
    for neighbour in &ranks {
        let account = neighbour.account.as_ref().unwrap();
        assert_eq!((account.rank, &account.job, account.pid), (neighbour.rank, &job.name, std::process::id()));
        let samples = scrape(account.metrics.unwrap());
        let number = neighbour.rank.to_string();
        let value = |name: &str, labels: &[(&str, &str)]| {
            samples.value(name, &[&[("rank", &*number), ("group", "world")], labels].concat())
        };
        let all_reduce = ("kind", "all_reduce");
        let found = [
            value("phalanx_operations_total", &[all_reduce]),
            value("phalanx_bytes_total", &[all_reduce, ("direction", "input")]),
            value("phalanx_operation_seconds_count", &[all_reduce]),
            value("phalanx_operations_in_flight", &[all_reduce]),
        ];
        assert_eq!(found, [10.0, 81_920.0, 10.0, 0.0]);
        assert!(value("phalanx_operation_seconds_sum", &[all_reduce]) > 0.0);
        let is_waiting = neighbour.rank == 0;
        assert_eq!(value("phalanx_oldest_operation_seconds", &[]) > 0.0, is_waiting);
        assert!((value("phalanx_collective_sequence", &[]) - if is_waiting { 10.0 } else { 9.0 }).abs() < 0.5);
        let pending = account.groups[0].pending.as_ref();
        assert_eq!(pending.map(|pending| (&*pending.kind, pending.sequence)), is_waiting.then_some(("barrier", 10)));
    }
}

#[test]
fn an_account_is_that_of_the_world() {
    let job = Job::new("account");
    let world: World = job.join(0, 1).join().unwrap();
    let group = world.group().unwrap();
    group.barrier().unwrap();
    let account = phalanx::account(&world);
    assert_eq!((account.rank, account.world_size, account.groups.len()), (0, 1, 1));
    let [kind] = &account.groups[0].kinds[..] else { panic!("{account:?}") };
    assert_eq!((&*kind.kind, kind.called, kind.ended, kind.failed.len()), ("barrier", 1, 1, 0));
    assert_eq!((account.groups[0].ended(), account.groups[0].in_flight(), account.groups[0].failed()), (1, 0, 0));
    drop(group);
    // Somebody else who looks at the ranks of this host may hold it for a moment.
    let began = Instant::now();
    while !phalanx::account(&world).groups.is_empty() {
        assert!(began.elapsed() < LONG, "the group is still there");
        std::thread::yield_now();
    }
    world.leave(LONG).unwrap();
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = Job::new("taken").join(0, 1).metrics(address).join().unwrap_err().to_string();
    assert!(error.starts_with(&format!("metrics at {address}: {address}: ")), "{error}");
    // Nobody else was met: of the two that are to come only this one is here, and it does not wait.
    let told = Joining::url("file:///proc/none?rank=0&world_size=2&local_rank=0").unwrap();
    assert_eq!(told.metrics(address).join().unwrap_err().to_string(), error);
}

#[test]
fn a_rank_that_others_count_on_works_without_its_metrics() {
    let (job, taken) = (Job::new("counted"), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let address = taken.local_addr().unwrap();
    let rank = |rank: usize| {
        let joining = job.join(rank, 2);
        let joining = if rank == 0 { joining.metrics(address) } else { joining };
        let (world, mut sum) = (joining.join().unwrap(), [1.0_f32]);
        let group = world.group().unwrap();
        group.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        assert_eq!((sum, phalanx::account(&world).metrics), ([2.0], None));
        drop(group);
        world.leave(LONG).unwrap();
    };
    thread::scope(|scope| [0, 1].map(|number| scope.spawn(move || rank(number))).map(|rank| rank.join().unwrap()));
}
