//! Messages: by tag, from anybody, out of order, long, in batches, and from several threads of one rank.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use phalanx_core::{Delivered, Group, Message, Scope};

use crate::asynchronous::block_on;
use crate::case::{Case, hash};
use crate::setting::{Setting, WORLDS};

/// Around the circle, all lengths, each under its tag.
pub(crate) fn by_tag(setting: &Setting) {
    for size in WORLDS.into_iter().filter(|&size| size > 1) {
        setting.run(size, |group| {
            let (next, before) = neighbours(group);
            for (tag, len) in [0, 1, 2, 7, 1000, 65537].into_iter().enumerate() {
                let tag = [0, 1, 2, 3, 77, u32::MAX][tag];
                let case = Case::new(len as u64, size, len);
                let sending = group.send_async(case.given::<u32>(group.rank(), next, len), next, tag).unwrap();
                let mut got = case.stale::<u32>(len);
                assert_eq!(group.recv(&mut got, before, tag), Ok(before));
                assert!(got == case.given::<u32>(before, group.rank(), len), "{len} from {before}");
                let Delivered { data, peer } = sending.wait().unwrap();
                assert_eq!((data.len(), peer), (len, next));
            }
        });
    }
}

/// Whoever sends first is named.
pub(crate) fn any_source(setting: &Setting) {
    for size in WORLDS.into_iter().filter(|&size| size > 1) {
        setting.run(size, |group| {
            if group.rank() != 0 {
                group.send(&[group.rank() as u64; 3], 0, 9).unwrap();
                return group.send(&[group.rank() as u64 * 100; 3], 0, 10).unwrap();
            }
            let waiting: Vec<_> = (1..size).map(|_| group.recv_async(vec![0_u64; 3], None, 10).unwrap()).collect();
            let mut seen = vec![false; size];
            for _ in 1..size {
                let mut got = [0_u64; 3];
                let from = group.recv(&mut got, None, 9).unwrap();
                assert_eq!(got, [from as u64; 3]);
                assert!(!std::mem::replace(&mut seen[from], true), "{from} was seen before");
            }
            for work in waiting {
                let Delivered { data, peer } = work.wait().unwrap();
                assert_eq!(data, [peer as u64 * 100; 3]);
                assert!(std::mem::replace(&mut seen[peer], false), "{peer} was seen before");
            }
        });
    }
}

/// Tags in another order than sent; with one tag, in the order sent.
pub(crate) fn out_of_order(setting: &Setting) {
    setting.run(2, |group| {
        const MESSAGES: u32 = 60;
        if group.rank() == 0 {
            (0..MESSAGES).for_each(|number| group.send(&[number; 50], 1, number % 6).unwrap());
            return group.barrier().unwrap();
        }
        for tag in [5, 0, 3, 1, 4, 2] {
            for round in 0..MESSAGES / 6 {
                let mut got = [0_u32; 50];
                group.recv(&mut got, 0, tag).unwrap();
                assert_eq!(got, [round * 6 + tag; 50]);
            }
        }
        group.barrier().unwrap();
    });
}

/// Longer than whatever lies between two ranks, in both directions at once, by calls that block.
pub(crate) fn long(setting: &Setting) {
    setting.run(2, |group| {
        let (me, peer) = (group.rank(), 1 - group.rank());
        let case = Case::new(3, 2, 700_000);
        group.send(&case.given::<i64>(me, 0, case.len), peer, 1).unwrap();
        let mut got = case.stale::<i64>(case.len);
        group.recv(&mut got, peer, 1).unwrap();
        assert!(got == case.given::<i64>(peer, 0, case.len));
    });
}

/// A shift around the circle by calls that block, of more than lies between two ranks: everybody sends, and then receives.
pub(crate) fn around_the_circle(setting: &Setting) {
    for size in [3, 5] {
        setting.run(size, |group| {
            let (next, before) = neighbours(group);
            for tag in 0..3 {
                let case = Case::new(u64::from(tag), size, MORE_THAN_A_LINK_HOLDS);
                group.send(&case.given::<i64>(group.rank(), next, case.len), next, tag).unwrap();
                let mut got = case.stale::<i64>(case.len);
                group.recv(&mut got, before, tag).unwrap();
                assert!(got == case.given::<i64>(before, group.rank(), case.len));
            }
        });
    }
}

/// The receiver asks only after a collective that the sender comes to once its message has gone, which each of them may
/// call or have played beside it.
pub(crate) fn before_a_collective(setting: &Setting) {
    for size in [2, 3, 5] {
        setting.run(size, |group| {
            let (me, case) = (group.rank(), Case::new(5, size, MORE_THAN_A_LINK_HOLDS));
            for beside in [false, true] {
                if me == 0 {
                    group.send(&case.given::<i64>(0, 1, case.len), 1, 6).unwrap();
                }
                if beside {
                    group.barrier_async().unwrap().wait().unwrap();
                } else {
                    group.barrier().unwrap();
                }
                if me == 1 {
                    let mut got = case.stale::<i64>(case.len);
                    group.recv(&mut got, 0, 6).unwrap();
                    assert!(got == case.given::<i64>(0, 1, case.len));
                }
            }
        });
    }
}

/// Everybody to everybody at once, in an order that would block if the order mattered.
pub(crate) fn batches(setting: &Setting) {
    for size in WORLDS {
        setting.run(size, |group| {
            let me = group.rank();
            let len = |from: usize, to: usize| (hash((from * 31 + to) as u64) % 20_000) as usize;
            let case = Case::new(8, size, 0);
            let peers: Vec<usize> = (0..size).filter(|&peer| peer != me).collect();
            let give = peers.iter().map(|&to| {
                let data = case.given::<u32>(me, to, len(me, to));
                Message::Send { data, to, tag: 4 }
            });
            let take = peers.iter().rev().map(|&from| {
                let data = vec![0; len(from, me)];
                Message::Recv { data, from: Some(from), tag: 4 }
            });
            let done = group.batch(give.chain(take).collect()).unwrap();
            let (sent, came) = done.split_at(peers.len());
            for (&to, sent) in peers.iter().zip(sent) {
                assert!(sent.peer == to && sent.data == case.given::<u32>(me, to, len(me, to)));
            }
            for (&from, came) in peers.iter().rev().zip(came) {
                assert!(came.peer == from && came.data == case.given::<u32>(from, me, len(from, me)));
            }
            assert_eq!(group.batch::<u8>(vec![]), Ok(vec![]));
            // Begun, and waited for from the last to the first with a collective between.
            let data = |from, to| case.given::<u32>(from, to, len(from, to));
            let messages = peers.iter().flat_map(|&peer| {
                let taken = Message::Recv { data: vec![0; len(peer, me)], from: Some(peer), tag: 5 };
                [taken, Message::Send { data: data(me, peer), to: peer, tag: 5 }]
            });
            let mut begun = group.batch_async(messages.collect()).unwrap();
            group.barrier().unwrap();
            for &peer in peers.iter().rev() {
                for expected in [data(me, peer), data(peer, me)] {
                    let delivered = begun.pop().expect("two for each peer").wait();
                    assert!(delivered == Ok(Delivered { data: expected, peer }));
                }
            }
        });
    }
}

/// A batch of which one message is refused ends once the others have come, and takes nothing that is sent later.
pub(crate) fn batches_with_an_error(setting: &Setting) {
    let has_sent = AtomicBool::new(false);
    setting.run(3, |group| match group.rank() {
        0 => {
            group.send(&[1_u8; 2], 1, 1).unwrap();
            group.send(&[0_u8; 0], 2, 3).unwrap();
        }
        1 => {
            let recv = |from, tag| Message::Recv { data: vec![0_u8], from: Some(from), tag };
            let error = group.batch(vec![recv(0, 1), recv(2, 2)]).unwrap_err();
            assert_eq!(error.scope(), Scope::Call);
            assert!(has_sent.load(Ordering::Acquire), "it did not wait for rank 2");
            group.send(&[0_u8; 0], 2, 3).unwrap();
            let mut got = [0_u8];
            group.recv(&mut got, 2, 2).unwrap();
            assert_eq!(got, [2]);
        }
        _ => {
            group.recv(&mut [0_u8; 0], 0, 3).unwrap();
            has_sent.store(true, Ordering::Release);
            group.send(&[1_u8], 1, 2).unwrap();
            group.recv(&mut [0_u8; 0], 1, 3).unwrap();
            group.send(&[2_u8], 1, 2).unwrap();
        }
    });
}

/// Messages as futures, begun before what they wait for.
pub(crate) fn futures(setting: &Setting) {
    for size in [2, 5] {
        setting.run(size, |group| {
            let (next, before) = neighbours(group);
            let came = block_on(async {
                let coming = group.recv_async(vec![0_u8; 1000], before, 2)?;
                group.send_async(vec![group.rank() as u8; 1000], next, 2)?.await?;
                coming.await
            });
            let (data, peer) = (vec![before as u8; 1000], before);
            assert_eq!(came, Ok(Delivered { data, peer }));
        });
    }
}

/// An asynchronous message whose peer has left ends the group, for those too who wait for nothing of that peer.
pub(crate) fn failed(setting: &Setting) {
    setting.run(3, |group| {
        let error = match group.rank() {
            0 => group.recv_async(vec![0_u8], 1, 5).unwrap().wait().unwrap_err(),
            1 => return,
            _ => group.recv(&mut [0_u8], 0, 5).unwrap_err(),
        };
        assert!(error.to_string().contains("rank 1 has left"), "{error}");
        assert!(group.send(&[1_u8], 2 - group.rank(), 6).is_err());
    });
}

/// Several threads of each rank use the group's messages while another does collectives. A message that one thread
/// moves for another must wake it: a thousand exchanges take moments.
pub(crate) fn from_several_threads(setting: &Setting) {
    let began = Instant::now();
    for size in [2, 3] {
        setting.run(size, |group| {
            let (next, before) = neighbours(group);
            let talk = |tag: u32| {
                for round in 0..120_u32 {
                    let mut got = [0_u32; 40];
                    group.send(&[round * 10 + tag; 40], next, tag).unwrap();
                    group.recv(&mut got, before, tag).unwrap();
                    assert_eq!(got, [round * 10 + tag; 40]);
                }
            };
            thread::scope(|scope| {
                (0..3).for_each(|tag| drop(scope.spawn(move || talk(tag))));
                (0..100).for_each(|_| group.barrier().unwrap());
            });
        });
    }
    assert!(began.elapsed().as_secs() < 20, "took {:?}", began.elapsed());
}

/// How many elements of 8 bytes.
const MORE_THAN_A_LINK_HOLDS: usize = 130_000;

fn neighbours(group: &Group) -> (usize, usize) {
    let (rank, size) = (group.rank(), group.size());
    ((rank + 1) % size, (rank + size - 1) % size)
}
