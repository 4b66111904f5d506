//! How ranks come together over TCP, and what is told when they do not.

use std::thread;
use std::time::Duration;

use phalanx_comm::secure::JobKey;
use phalanx_comm::store::LocalStore;
use phalanx_comm::{Door, Network, Processes, Protection};
use phalanx_core::schedule::{Algorithm, Profile};
use phalanx_core::store::{Limits, Store};
use phalanx_core::{Error, Group, GroupOptions, ReduceOp, Result};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(1500);

fn store() -> Store {
    Store::new(LocalStore::new(Limits::default()))
}

fn key(byte: &str) -> JobKey {
    JobKey::from_hex(&byte.repeat(32)).unwrap()
}

/// Has each of these ranks of `size` join as `style` says.
fn join(
    ranks: &[usize],
    size: usize,
    timeout: Duration,
    style: impl Fn(usize, Network) -> Network + Sync,
) -> Vec<Result<Group>> {
    let store = store();
    let network = |rank: usize| Network::new(rank, size, store.clone()).shared_memory(false);
    let join = |rank: usize| style(rank, network(rank)).join(timeout);
    thread::scope(|scope| {
        let join = &join;
        let ranks: Vec<_> = ranks.iter().map(|&rank| scope.spawn(move || join(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn protections_and_addresses_make_no_difference_to_what_is_computed() {
    let styles: [fn(usize, Network) -> Network; 6] = [
        |_, network| network.address("127.0.0.1".parse().unwrap()),
        |_, network| network.address("::1".parse().unwrap()),
        |_, network| network.key(key("07")).protection(Protection::Handshake),
        |_, network| network.key(key("07")).protection(Protection::Authenticated),
        |_, network| network.key(key("07")).protection(Protection::Encrypted),
        |_, network| network.insecure(true).hosts(vec![0, 0, 1]),
    ];
    let has_six = std::net::TcpListener::bind("[::1]:0").is_ok();
    for (_, style) in styles.into_iter().enumerate().filter(|(at, _)| *at != 1 || has_six) {
        let groups: Vec<Group> = join(&[0, 1, 2], 3, LONG, style).into_iter().map(Result::unwrap).collect();
        thread::scope(|scope| {
            for group in groups {
                scope.spawn(move || {
                    let mut data = vec![group.rank() as u32; 50_000];
                    group.all_reduce(&mut data, ReduceOp::Sum).unwrap();
                    assert_eq!(data, vec![3; 50_000]);
                });
            }
        });
    }
}

/// How many mappings of shared segments this process has.
fn segments() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd:")).count()
}

/// No other test here shares memory.
#[test]
fn ranks_of_one_host_share_memory_unless_they_are_not_to() {
    let store = store();
    let hosts = [(true, vec![0, 0, 0, 1]), (true, vec![0, 1, 2, 3]), (false, vec![0, 0, 0, 1])];
    for (number, ((shared_memory, hosts), shares)) in hosts.into_iter().zip([3, 0, 0]).enumerate() {
        let rank = |rank: usize| {
            let network = Network::new(rank, 4, store.scope(&number.to_string())).hosts(hosts.clone());
            network.shared_memory(shared_memory).join(LONG).unwrap()
        };
        let groups: Vec<Group> = thread::scope(|scope| {
            let rank = &rank;
            let ranks: Vec<_> = (0..4).map(|number| scope.spawn(move || rank(number))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        assert_eq!(segments(), shares, "{shared_memory} {hosts:?}");
        thread::scope(|scope| groups.into_iter().for_each(|group| drop(scope.spawn(move || group.barrier().unwrap()))));
        assert_eq!(segments(), 0);
    }
}

#[test]
fn profiles_and_wishes_that_differ_are_named() {
    let profile = |rank: usize| Profile::default().segment((100 + rank) << 10);
    let ends = join(&[0, 1], 2, LONG, |rank, network| network.options(GroupOptions::default().profile(profile(rank))));
    let said = ends[0].as_ref().unwrap_err().to_string();
    assert!(said.starts_with("ranks over TCP: rank 1 has a profile with hash "), "{said}");
    let ends = join(&[0, 1], 2, LONG, |rank, network| network.shared_memory(rank == 1));
    let said = ends[0].as_ref().unwrap_err().to_string();
    assert_eq!(said, "ranks over TCP: rank 1 has shared memory true, this rank false");
    let ends = join(&[0, 1], 2, LONG, |rank, network| network.windows(rank == 1));
    let said = ends[0].as_ref().unwrap_err().to_string();
    assert_eq!(said, "ranks over TCP: rank 1 has windows true, this rank false");
    let wish = |rank, network: Network| if rank == 1 { network.algorithm(Algorithm::Ring) } else { network };
    let ends = join(&[0, 1], 2, LONG, wish);
    let said = ends[0].as_ref().unwrap_err().to_string();
    assert_eq!(said, "ranks over TCP: rank 1 has algorithm ring, this rank of its choice");
}

/// In shared memory as over TCP.
#[test]
fn ranks_of_one_host_with_different_settings_do_not_meet() {
    let styles: [fn(Processes) -> Processes; 4] = [
        |ranks| ranks.algorithm(Algorithm::Ring),
        |ranks| ranks.windows(false),
        |ranks| ranks.checksum(true),
        |ranks| ranks.options(GroupOptions::default().profile(Profile::default().segment(100))),
    ];
    let meet = |number: usize, style: fn(Processes) -> Processes| {
        let door = Door::named(format!("phalanx-settings-{}-{number}", std::process::id()));
        let ranks = |rank| Processes::new(rank, 2, door.clone(), [7; 16]).heap(1 << 20);
        thread::scope(|scope| {
            let other = scope.spawn(|| style(ranks(1)).join(LONG));
            let host = ranks(0).join(SHORT);
            [host, other.join().unwrap()].map(|end| end.unwrap_err().to_string())
        })
    };
    thread::scope(|scope| {
        let meet = &meet;
        let meetings = styles.into_iter().enumerate();
        let meetings: Vec<_> = meetings.map(|(number, style)| scope.spawn(move || meet(number, style))).collect();
        for meeting in meetings {
            let [host, other] = meeting.join().unwrap();
            assert!(host.ends_with("; rank 1 came as one of 2 in epoch 0, or with other settings"), "{host}");
            let expected = "local ranks: rank 0 has another group or other settings than rank 1 of 2 in epoch 0";
            assert_eq!(other, expected);
        }
    });
}

#[test]
fn who_does_not_come_is_named() {
    for end in join(&[0, 2], 4, SHORT, |_, network| network) {
        let Err(Error::Setup(setup)) = end else { panic!("{end:?}") };
        assert_eq!(setup.missing, [1, 3], "{setup}");
    }
}

#[test]
fn settings_that_differ_are_named() {
    let ends = join(&[0, 1], 2, LONG, |rank, network| network.checksum(rank == 1));
    let said: Vec<String> = ends.into_iter().map(|end| end.unwrap_err().to_string()).collect();
    assert_eq!(said[0], "ranks over TCP: rank 1 has checksum true, this rank false");
    assert_eq!(said[1], "ranks over TCP: rank 0 has checksum false, this rank true");
}

#[test]
fn another_key_is_told_by_who_was_refused_and_all_hear_that_it_failed() {
    let ends = join(&[0, 1, 2], 3, SHORT, |rank, network| {
        let network = network.address("127.0.0.1".parse().unwrap());
        network.key(key(if rank == 2 { "08" } else { "07" }))
    });
    let said: Vec<String> = ends.into_iter().map(|end| end.unwrap_err().to_string()).collect();
    assert!(said[2].starts_with("rank 0 at 127.0.0.1:") && said[2].contains("another key"), "{said:?}");
    for said in &said[..2] {
        assert!(said.contains("rank 2 "), "{said}");
    }
}

#[test]
fn a_foreign_address_is_refused_before_anybody_waits() {
    let error = Network::new(0, 2, store()).address("192.0.2.1".parse().unwrap()).join(LONG).unwrap_err();
    assert!(error.to_string().starts_with("listening at 192.0.2.1: needs a job key"), "{error}");
    let error = Network::new(2, 2, store()).join(LONG).unwrap_err();
    assert_eq!(error.to_string(), "rank: 2 is not below the group size 2");
}
