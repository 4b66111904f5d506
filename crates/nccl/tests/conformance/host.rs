//! The same over memory of the host: core's group with NCCL below it.

use std::time::Duration;

use phalanx_core::{ErrorKind, Message, OpKind, ReduceOp, Reduction};
use phalanx_nccl::api::Version;
use phalanx_nccl::group::NcclOptions;
use phalanx_nccl::sim::Simulation;

use crate::seats::{clean, group, seeds};
use crate::setting::run;

#[test]
fn operations_of_cores_group() {
    for (seed, size) in seeds(4).flat_map(|seed| (1..=4).map(move |size| (seed, size))) {
        run(size, seed, |member| {
            let (group, rank, size) = (member.group.group(), member.rank, member.size);
            let mut data = vec![rank as f32 + 1.0; 7];
            group.all_reduce(&mut data, ReduceOp::Sum).expect("summed");
            assert_eq!(data, vec![(size * (size + 1) / 2) as f32; 7]);
            group.all_reduce(&mut data, Reduction::scaled(0.5)).expect("summed");
            assert_eq!(data, vec![(size * size * (size + 1)) as f32 / 4.0; 7]);
            let work = group.all_gather_async(vec![rank as u16; 2], vec![0; 2 * size]).expect("submitted");
            let (_, all) = work.wait().expect("gathered");
            assert_eq!(all, (0..size).flat_map(|rank| [rank as u16; 2]).collect::<Vec<_>>());
            group.barrier().expect("all came");
            let mut own = vec![rank as i64; 3];
            group.broadcast(&mut own, size - 1).expect("given");
            assert_eq!(own, vec![size as i64 - 1; 3]);
            let records = group.recorder().records();
            assert_eq!(records.len(), 5);
            assert!(records.iter().all(|record| record.ended.is_some() && record.started.is_some()));
            assert_eq!(records[3].op, OpKind::Barrier);
        });
    }
}

#[test]
fn messages_between_two() {
    for seed in seeds(8) {
        run(3, seed, |member| {
            let (group, rank, size) = (member.group.group(), member.rank, member.size);
            let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
            let mut got = [0_u32; 4];
            if rank == 0 {
                group.send(&[rank as u32; 4], next, 0).expect("sent");
                group.recv(&mut got, before, 0).expect("received");
            } else {
                group.recv(&mut got, before, 0).expect("received");
                group.send(&[rank as u32; 4], next, 0).expect("sent");
            }
            assert_eq!(got, [before as u32; 4]);
        });
    }
}

#[test]
fn what_nccl_has_not_is_refused_and_the_group_goes_on() {
    run(2, 1, |member| {
        let group = member.group.group();
        let peer = 1 - member.rank;
        // One rank alone is refused, and its numbers are still those of the other.
        if member.rank == 0 {
            let refused = [
                group.send(&[1_u8], peer, 7).err(),
                group.recv(&mut [1_u8], None, 0).err(),
                group.all_reduce(&mut [1_u16], ReduceOp::Sum).err(),
                group.all_reduce(&mut [1_i32], ReduceOp::BitXor).err(),
            ];
            assert!(refused.iter().all(|error| error.as_ref().map(|error| error.kind()) == Some(ErrorKind::Usage)));
        }
        let mut data = [2_i32; 3];
        group.all_reduce(&mut data, ReduceOp::Product).expect("multiplied");
        assert_eq!(data, [4; 3]);
    });
}

#[test]
fn a_library_that_is_too_old_makes_no_group() {
    let outcome = Simulation::new(1, 1).version(Version::new(2, 17, 1)).run(|rank| {
        let error = group(&rank, "group", NcclOptions::default()).expect_err("too old");
        (error.kind(), error.to_string())
    });
    let told = "NCCL: version 2.17.1 is older than 2.18.0".to_owned();
    assert_eq!(outcome.results, [Some((ErrorKind::Setup, told))]);
    clean(&outcome, 1);
}

/// The library reads that itself, and lets it overrule what communicators are made with.
#[test]
fn communicators_that_would_block_make_no_group() {
    let outcome = Simulation::new(1, 1).run(|rank| {
        let (options, _) = NcclOptions::default().setting("NCCL_COMM_BLOCKING", "1").expect("a number");
        let error = group(&rank, "group", options).expect_err("they would block");
        (error.kind(), error.to_string())
    });
    let told = "NCCL: NCCL_COMM_BLOCKING is 1, and must be 0 or unset: a communicator that blocks cannot be given up";
    assert_eq!(outcome.results, [Some((ErrorKind::Setup, told.to_owned()))]);
    clean(&outcome, 1);
}

#[test]
fn several_threads_may_call_one_group() {
    // Numbers are given out in one order and jobs may come in another, which must not show.
    for seed in seeds(6) {
        run(2, seed, |member| {
            let group = member.group.group().within(Duration::from_secs(5));
            let works: Vec<_> =
                (0..6_u32).map(|at| group.all_reduce_async(vec![at; 3], ReduceOp::Sum).expect("submitted")).collect();
            for (at, work) in works.into_iter().enumerate().rev() {
                assert_eq!(work.wait().expect("summed"), vec![at as u32 * 2; 3]);
            }
        });
    }
}

#[test]
fn a_batch_of_messages_crosses() {
    for seed in seeds(6) {
        let ended = run(3, seed, |member| {
            let (group, rank) = (member.group.group(), member.rank);
            let others = [(rank + 1) % 3, (rank + 2) % 3];
            let sends = others.map(|to| Message::Send { data: vec![10 * rank as u8 + to as u8; 2], to, tag: 0 });
            let recvs = others.map(|from| Message::Recv { data: vec![9; 2], from: Some(from), tag: 0 });
            let all = group.batch(sends.into_iter().chain(recvs).collect()).expect("exchanged");
            // Batches of one and of several are parts of one exchange.
            let one = if rank == 0 {
                let to = |to| Message::Send { data: vec![to as u8], to, tag: 0 };
                group.batch(vec![to(1), to(2)])
            } else {
                group.batch(vec![Message::Recv { data: vec![0_u8], from: Some(0), tag: 0 }])
            };
            (all, one.expect("exchanged"))
        });
        for (rank, (all, one)) in ended.iter().enumerate() {
            let others = [(rank + 1) % 3, (rank + 2) % 3];
            let expected = |from: usize| vec![(10 * from + rank) as u8; 2];
            assert_eq!(
                all[2..].iter().map(|got| &got.data).collect::<Vec<_>>(),
                [&expected(others[0]), &expected(others[1])]
            );
            assert!(rank == 0 || one[0].data == [rank as u8]);
        }
    }
}

#[test]
fn single_messages_that_cross_are_told_of_the_batch() {
    // Single messages of one pair go in their order over one communicator, so two that cross wait for each other.
    for (is_sent, seed) in [true, false].into_iter().flat_map(|is_sent| (0..4).map(move |seed| (is_sent, seed))) {
        let ended = run(2, seed, move |member| {
            let (group, peer) = (member.group.group().within(Duration::from_secs(60)), 1 - member.rank);
            let mut got = [0_u8; 2];
            if is_sent {
                group.send(&[1_u8; 2], peer, 0).and_then(|()| group.recv(&mut got, peer, 0).map(drop))
            } else {
                group.recv(&mut got, peer, 0).map(drop).and_then(|()| group.send(&[1_u8; 2], peer, 0))
            }
        });
        let told: Vec<String> = ended.into_iter().map(|end| end.expect_err("they cross").to_string()).collect();
        let is_told = |words: &String| words.contains("messages that cross begin together, in a batch");
        assert!(told.iter().all(is_told), "{told:?}");
    }
}
