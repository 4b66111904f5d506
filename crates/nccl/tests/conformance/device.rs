//! What only memory of a device has: streams, events, batches, and memory that operations keep.

use phalanx_core::{DType, Op, ReduceOp};
use phalanx_nccl::api::{Argument, Cuda, Grid};
use phalanx_nccl::kernels;

use crate::seats::{DEVICE, seeds};
use crate::setting::{elements, run};

#[test]
fn a_chain_of_kernels_and_collectives_needs_no_host() {
    for seed in seeds(20) {
        run(3, seed, |member| {
            let data = member.upload(&elements(DType::F32, &[1, 2, 4]));
            let op = Op::AllReduce { count: 3, reduce: ReduceOp::Sum };
            let mut works = Vec::new();
            for _ in 0..4 {
                let work = member.group.submit(op.clone(), DType::F32, None, (None, &data), member.stream);
                let work = work.expect("submitted");
                work.fence(member.stream).expect("on its stream");
                let arguments = [Argument::Write(data.span()), Argument::Real(1.0 / 3.0)];
                member.cuda.launch(kernels::SCALE, GRID, &arguments, member.stream).expect("launched");
                works.push(work);
            }
            assert_eq!(member.download(&data), elements(DType::F32, &[1, 2, 4]));
            works.into_iter().for_each(|work| work.wait().expect("done"));
        });
    }
}

#[test]
fn memory_lives_as_long_as_its_operation() {
    for seed in seeds(20) {
        run(2, seed, |member| {
            let op = Op::AllReduce { count: 2, reduce: ReduceOp::Sum };
            let data = member.upload(&elements(DType::I32, &[1, 2]));
            let work = member.group.submit(op, DType::I32, None, (None, &data), member.stream).expect("submitted");
            drop(data);
            drop(work);
        });
    }
}

#[test]
fn a_batch_is_one_piece_of_work() {
    for seed in seeds(10) {
        run(2, seed, |member| {
            let datas: Vec<_> = (1..=3).map(|value| member.upload(&elements(DType::F64, &[value; 2]))).collect();
            let work = member.group.coalesce(member.stream, |batch| {
                for data in &datas {
                    let op = Op::AllReduce { count: 2, reduce: ReduceOp::Sum };
                    batch.add(op, DType::F64, None, (None, data));
                }
            });
            work.expect("submitted").wait().expect("done");
            for (value, data) in (1..=3).zip(&datas) {
                assert_eq!(member.download(data), elements(DType::F64, &[2 * value; 2]));
            }
            let peer = 1 - member.rank;
            let (out, none) = (member.upload(&elements(DType::I8, &[member.rank as i64])), member.upload(&[]));
            let into = member.upload(&[9]);
            let work = member.group.coalesce(member.stream, |batch| {
                batch.add(Op::Send { count: 1, to: peer, tag: 0 }, DType::I8, None, (Some(&out), &none));
                batch.add(Op::Recv { count: 1, from: Some(peer), tag: 0 }, DType::I8, None, (Some(&none), &into));
            });
            work.expect("submitted").wait().expect("done");
            assert_eq!(member.download(&into), [peer as u8]);
            let mixed = member.group.coalesce(member.stream, |batch| {
                batch.add(Op::AllReduce { count: 2, reduce: ReduceOp::Sum }, DType::F64, None, (None, &datas[0]));
                batch.add(Op::Send { count: 1, to: peer, tag: 0 }, DType::I8, None, (Some(&out), &none));
            });
            assert!(mixed.err().is_some_and(|error| error.to_string().contains("all collectives or all messages")));
            let after = member.group.barrier(member.stream).expect("submitted");
            after.wait().expect("the group goes on");
        });
    }
}

#[test]
fn two_streams_of_a_program_share_a_group() {
    for seed in seeds(20) {
        run(2, seed, |member| {
            let other = member.cuda.create_stream(DEVICE, true).expect("a stream");
            let data = member.upload(&elements(DType::F32, &[1; 4]));
            let op = Op::AllReduce { count: 4, reduce: ReduceOp::Sum };
            let work = member.group.submit(op, DType::F32, None, (None, &data), member.stream).expect("submitted");
            work.fence(other).expect("on its stream");
            let arguments = [Argument::Write(data.span()), Argument::Real(2.0)];
            member.cuda.launch(kernels::SCALE, GRID, &arguments, other).expect("launched");
            member.cuda.synchronize_stream(other).expect("done");
            assert_eq!(member.download(&data), elements(DType::F32, &[4; 4]));
        });
    }
}

const GRID: Grid = Grid { blocks: 1, threads: 32 };
