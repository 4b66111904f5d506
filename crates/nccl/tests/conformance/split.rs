//! Groups that are split from another.

use phalanx_core::{DType, ErrorKind, GroupOptions, Op, ReduceOp};
use phalanx_nccl::conformance::elements;

use crate::seats::seeds;
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
