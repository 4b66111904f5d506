//! Objects and blobs: every rank gets what was given, and when it cannot, every rank is told and the group goes on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::{Error, ErrorKind, Group, GroupOptions, Result, Scope};
use serde::{Deserialize, Serialize};

use crate::case::hash;
use crate::setting::{SMALL_WORLDS, Setting};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Settings {
    name: String,
    rates: Vec<f64>,
    limits: BTreeMap<String, Option<u32>>,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Kind {
    Plain,
    Nested(Box<Settings>),
}

/// The settings of a rank, as long as chance will have it.
fn settings(rank: usize, seed: u64) -> Settings {
    let len = hash(seed * 100 + rank as u64) % 3000;
    let plain = Settings {
        name: format!("rank {rank}"),
        rates: (0..len).map(|at| at as f64 / 3.0).collect(),
        limits: BTreeMap::from([("a".to_owned(), None), ("b".to_owned(), Some(seed as u32))]),
        kind: Kind::Plain,
    };
    if len.is_multiple_of(2) {
        plain.clone()
    } else {
        Settings { kind: Kind::Nested(Box::new(plain.clone())), ..plain }
    }
}

pub(crate) fn of_any_size(setting: &Setting) {
    for size in SMALL_WORLDS {
        setting.run(size, |group| {
            let me = group.rank();
            for seed in 0..4 {
                let (root, all) =
                    (seed as usize % size, (0..size).map(|rank| settings(rank, seed)).collect::<Vec<_>>());
                let own = all[me].clone();
                assert_eq!(group.broadcast_object((me == root).then(|| own.clone()), root), Ok(all[root].clone()));
                // As in Python, what others give is replaced.
                assert_eq!(group.broadcast_object(Some(own.clone()), root), Ok(all[root].clone()));
                assert_eq!(group.all_gather_object(&own), Ok(all.clone()));
                assert_eq!(group.gather_object(&own, root), Ok((me == root).then(|| all.clone())));
                assert_eq!(group.scatter_objects((me == root).then_some(&*all), root), Ok(own));
                assert_eq!(group.all_gather_object(&()), Ok(vec![(); size]));
            }
        });
    }
}

pub(crate) fn blobs(setting: &Setting) {
    for size in SMALL_WORLDS {
        setting.run(size, |group| {
            let me = group.rank();
            for longest in [0, 1, 50, 40_000] {
                let blob = |rank: usize| vec![rank as u8; (hash(rank as u64 + longest) % (longest + 1)) as usize];
                let (root, all) = (longest as usize % size, (0..size).map(blob).collect::<Vec<_>>());
                assert_eq!(group.broadcast_bytes((me == root).then(|| blob(root)), root), Ok(blob(root)));
                assert_eq!(group.all_gather_bytes(&blob(me)), Ok(all.clone()));
                assert_eq!(group.gather_bytes(&blob(me), root), Ok((me == root).then(|| all.clone())));
                let slices: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
                assert_eq!(group.scatter_bytes((me == root).then_some(&*slices), root), Ok(blob(me)));
            }
        });
    }
}

/// Around the circle and from anybody; what is of another type or too long goes by, and the next comes as it should.
pub(crate) fn in_messages(setting: &Setting) {
    for size in SMALL_WORLDS.into_iter().filter(|&size| size > 1) {
        setting.run(size, |group| {
            let (me, next, before) = (group.rank(), (group.rank() + 1) % size, (group.rank() + size - 1) % size);
            for seed in 0..3 {
                group.send_object(&settings(me, seed), next, 7).unwrap();
                group.send_bytes(&vec![me as u8; 5 * seed as usize], next, 7).unwrap();
                assert_eq!(group.recv_object(None, 7), Ok((settings(before, seed), before)));
                assert_eq!(group.recv_bytes(before, 7), Ok((vec![before as u8; 5 * seed as usize], before)));
            }
            group.send_object(&3_u32, next, 8).unwrap();
            group.send_object(&(), next, 8).unwrap();
            group.send_object(&vec![1_u8; 9], next, 8).unwrap();
            group.send_object(&4_u32, next, 8).unwrap();
            for theirs in ["u32", "()"] {
                let error = group.recv_object::<String>(before, 8).unwrap_err();
                let expected = format!(
                    "rank {me} called with object type alloc::string::String, rank {before} with object type {theirs}"
                );
                assert!(error.to_string().contains(&expected), "{error}");
                assert_eq!(error.scope(), Scope::Call);
            }
            assert_eq!(group.recv_object::<Vec<u8>>(before, 8), Ok((vec![1; 9], before)));
            assert_eq!(group.recv_object::<u32>(before, 8), Ok((4, before)));
            let error = group.send_object(&1, me, 8).unwrap_err();
            assert_eq!(error.to_string(), format!("send: to is {me}, must be another rank than the caller's own"));
        });
    }
}

/// Two threads send under one tag what is as long as what goes before it; none takes a part of the other's.
pub(crate) fn in_messages_of_two_threads(setting: &Setting) {
    const EACH: usize = 200;
    setting.run(2, |group| {
        if group.rank() == 0 {
            let send = |value: u8| (0..EACH).for_each(|_| group.send_bytes(&[value; 128], 1, 7).unwrap());
            return thread::scope(|scope| [1, 2].into_iter().for_each(|value| drop(scope.spawn(move || send(value)))));
        }
        let mut came = [0; 3];
        for _ in 0..2 * EACH {
            let (bytes, _) = group.recv_bytes(0, 7).unwrap();
            assert!(bytes.len() == 128 && bytes.iter().all(|byte| *byte == bytes[0]), "{bytes:?}");
            came[usize::from(bytes[0])] += 1;
        }
        assert_eq!(came, [0, EACH, EACH]);
    });
}

/// An object that its receiver does not take holds up no other thread's for longer than that one has said.
pub(crate) fn in_messages_held_up(setting: &Setting) {
    const MORE_THAN_A_LINK_HOLDS: usize = 32 << 20;
    let (is_under_way, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let wait_for = |flag: &AtomicBool| {
        while !flag.load(Ordering::Acquire) {
            thread::yield_now();
        }
    };
    setting.run(2, |group| {
        if group.rank() == 1 {
            // What goes before the bytes.
            group.recv(&mut [0_u8; 128], 0, 7).unwrap();
            is_under_way.store(true, Ordering::Release);
            return wait_for(&is_over);
        }
        thread::scope(|scope| {
            let first = scope.spawn(|| group.send_bytes(&vec![1; MORE_THAN_A_LINK_HOLDS], 1, 7).unwrap_err());
            wait_for(&is_under_way);
            let began = Instant::now();
            let error = group.within(Duration::from_millis(50)).send_bytes(&[2], 1, 8).unwrap_err();
            assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
            is_over.store(true, Ordering::Release);
            assert!(error.to_string().ends_with("not finished after 50ms; waiting for rank 1 to take data"), "{error}");
            assert_eq!(first.join().unwrap(), Error::aborted_by(error));
        });
    });
}

/// The last rank asks for another type, exchange or root: all ranks are told, and nothing has moved.
pub(crate) fn of_different_types(setting: &Setting) {
    for size in SMALL_WORLDS.into_iter().filter(|&size| size > 1) {
        let last = size - 1;
        let differs = |call: fn(&Group, bool) -> Result<()>, field: &str, ours: &str, theirs: &str| {
            let ends = setting.run(size, |group| {
                let end = call(group, group.rank() == last);
                group.barrier().unwrap();
                end
            });
            for (rank, end) in ends.into_iter().enumerate() {
                let Err(Error::Desync(desync)) = end else { panic!("rank {rank} of {size}: {end:?}") };
                let (peer, [mine, other]) = if rank == last { (0, [theirs, ours]) } else { (last, [ours, theirs]) };
                assert_eq!((desync.rank, desync.peer, desync.field), (rank, peer, field));
                assert_eq!((&*desync.ours, &*desync.theirs), (mine, other));
            }
        };
        let types: fn(&Group, bool) -> Result<()> = |group, other| match other {
            true => group.broadcast_object(Some(3_u32), 0).map(drop),
            false => group.broadcast_object(Some("three".to_owned()), 0).map(drop),
        };
        differs(types, "object type", "alloc::string::String", "u32");
        let blob: fn(&Group, bool) -> Result<()> = |group, other| match other {
            true => group.all_gather_bytes(&[1]).map(drop),
            false => group.all_gather_object(&vec![1_u8]).map(drop),
        };
        differs(blob, "object type", "alloc::vec::Vec<u8>", "bytes");
        let exchanges: fn(&Group, bool) -> Result<()> = |group, other| match other {
            true => group.gather_object(&1_u8, 0).map(drop),
            false => group.all_gather_object(&1_u8).map(drop),
        };
        differs(exchanges, "object exchange", "all_gather", "gather");
        let roots: fn(&Group, bool) -> Result<()> =
            |group, other| group.broadcast_object(Some(1_u8), usize::from(other)).map(drop);
        differs(roots, "root", "0", "1");
    }
}

/// A root that has nothing, or too few, is told why, and the others that it is so.
pub(crate) fn not_given(setting: &Setting) {
    for size in SMALL_WORLDS {
        setting.run(size, |group| {
            let (me, root) = (group.rank(), size - 1);
            let told = |end: Result<()>, expected: &str| {
                let error = end.unwrap_err();
                assert_eq!(error.scope(), Scope::Call);
                if me == root {
                    return assert_eq!(error.to_string(), expected);
                }
                let Error::Desync(desync) = error else { panic!("{error}") };
                assert_eq!((desync.peer, desync.field, &*desync.theirs), (root, "object", "that it could not give"));
            };
            told(
                group.broadcast_object::<u8>(None, root).map(drop),
                "broadcast: value is none, must be given by the root",
            );
            told(group.scatter_bytes(None, root).map(drop), "scatter: value is none, must be given by the root");
            let expected = format!("scatter: values is a list of 9, must have one for each of the {size} ranks");
            told(group.scatter_objects(Some(&[1_u8; 9]), root).map(drop), &expected);
            let error = group.broadcast_bytes(None, size).unwrap_err();
            assert_eq!(error.to_string(), format!("broadcast: root is {size}, must be below the group size {size}"));
            assert_eq!(group.all_gather_object(&me), Ok((0..size).collect()));
        });
    }
}

/// Beyond the least of what the ranks take, nothing travels, and each rank names whose it was.
pub(crate) fn too_long(setting: &Setting) {
    for size in SMALL_WORLDS {
        let groups = (setting.make)(size, GroupOptions::default().largest_object(100)).expect("a world");
        let ends = crate::setting::run(groups, |group| {
            let long = vec![0; if group.rank() == size - 1 { 101 } else { 100 }];
            let end = group.all_gather_bytes(&long).map(drop);
            let sent = if size > 1 { group.send_bytes(&[0; 101], (group.rank() + 1) % size, 0) } else { end.clone() };
            assert_eq!(sent.unwrap_err().kind(), ErrorKind::Usage);
            assert!(group.all_gather_bytes(&[0; 100]).is_ok());
            end
        });
        let named = format!(
            "all_gather: object is 101 bytes long on rank {}, must be at most 100, the largest object that all ranks take",
            size - 1
        );
        ends.iter().for_each(|end| assert_eq!(end.as_ref().unwrap_err().to_string(), named));
    }
}
