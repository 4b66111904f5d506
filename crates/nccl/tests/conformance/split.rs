//! Groups that are split from another.

use std::time::Duration;

use phalanx_core::{DType, ErrorKind, GroupOptions, Op, ReduceOp};
use phalanx_nccl::api::Process;
use phalanx_nccl::conformance::elements;
use phalanx_nccl::group::NcclOptions;
use phalanx_nccl::sim::Simulation;

use crate::seats::{clean, group, seeds};
use crate::setting::run;

#[test]
fn members_have_a_group_and_the_others_go_on() {
    for (seed, size) in seeds(8).flat_map(|seed| (2..=5).map(move |size| (seed, size))) {
        run(size, seed, |member| {
            let members: Vec<usize> = (0..member.size).rev().step_by(2).collect();
            let part = member.group.split(&members, GroupOptions::default().name("part")).expect("split");
            let place = members.iter().position(|&rank| rank == member.rank);
            assert_eq!(part.as_ref().map(|part| part.group().rank()), place);
            if let Some(part) = &part {
                let data = member.upload(&elements(DType::I32, &[member.rank as i64]));
                let op = Op::AllReduce { count: 1, reduce: ReduceOp::Sum };
                let work = part.submit(op, DType::I32, None, (None, &data), member.stream).expect("submitted");
                work.fence(member.stream).expect("on its stream");
                let sum = members.iter().sum::<usize>() as i64;
                assert_eq!(member.download(&data), elements(DType::I32, &[sum]));
                work.wait().expect("done");
                let mut first = [member.rank as u64];
                part.group().broadcast(&mut first, 0).expect("given");
                assert_eq!(first, [members[0] as u64]);
            }
            let mut all = [1_i32];
            member.group.group().all_reduce(&mut all, ReduceOp::Sum).expect("the whole group goes on");
            assert_eq!(all, [member.size as i32]);
        });
    }
}

/// The library answers a rank without a colour at once, though what is split is in progress until all have come.
#[test]
fn who_is_no_member_goes_on_though_a_member_is_late() {
    for seed in seeds(6) {
        let outcome = Simulation::new(3, seed).run(|rank| {
            let whole = group(&rank, "group", NcclOptions::default()).expect("a group");
            whole.group().barrier().expect("all came");
            if rank.rank == 1 {
                let bell = rank.process.bell();
                bell.wait(bell.count(), Some(rank.process.now() + Duration::from_millis(50)));
            }
            let part = whole.split(&[0, 1], GroupOptions::default().name("part")).expect("split");
            let mut all = [1_i32];
            whole.group().all_reduce(&mut all, ReduceOp::Sum).expect("the whole group goes on");
            (part.is_some(), all)
        });
        clean(&outcome, seed);
        let expected = [0, 1, 2].map(|rank| Some((rank < 2, [3])));
        assert_eq!(outcome.results, expected, "seed {seed}");
    }
}

/// The library does not bear that a communicator is split while its operations are under way.
#[test]
fn what_was_called_before_a_split_ends_before_it() {
    for seed in seeds(6) {
        run(3, seed, |member| {
            let works = [0; 4].map(|_| member.group.group().all_reduce_async(vec![1_i32; 64], ReduceOp::Sum));
            let part = member.group.split(&[2, 0], GroupOptions::default().name("part")).expect("split");
            assert_eq!(part.is_some(), member.rank != 1);
            works.into_iter().for_each(|work| assert_eq!(work.expect("begun").wait().expect("summed"), [3; 64]));
        });
    }
}

#[test]
fn members_must_be_ranks() {
    run(2, 1, |member| {
        for members in [&[][..], &[0, 0], &[2]] {
            let refused = member.group.split(members, GroupOptions::default()).err();
            assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::Usage));
        }
        member.group.group().barrier().expect("the group goes on");
    });
}
