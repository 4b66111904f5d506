//! What only memory of a device has: streams, events, batches, and memory that operations keep.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use phalanx_core::recorder::Record;
use phalanx_core::{DType, Error, ErrorKind, GroupOptions, Hook, Layout, Op, OpKind, ReduceOp};
use phalanx_nccl::api::{Argument, Cuda, Device, Grid, Process, Span};
use phalanx_nccl::conformance::elements;
use phalanx_nccl::group::{DeviceBuffer, DeviceGroup, NcclOptions, Stack};
use phalanx_nccl::kernels;
use phalanx_nccl::sim::{SimCuda, Simulation};

use crate::seats::{DEVICE, clean, seeds};
use crate::setting::run;

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

/// What another library has in memory of the device, and frees itself.
struct Tensor {
    cuda: Arc<SimCuda>,
    span: Span,
}

impl Drop for Tensor {
    fn drop(&mut self) {
        let _ = self.cuda.free(DEVICE, self.span);
    }
}

#[test]
fn memory_of_another_library_is_used_and_stays_as_long_as_its_operation() {
    for seed in seeds(20) {
        run(2, seed, |member| {
            let span = member.cuda.allocate(DEVICE, 8).expect("memory");
            let tensor = Tensor { cuda: Arc::clone(&member.cuda), span };
            // SAFETY: the memory of the tensor, which frees it when it is dropped.
            let data = unsafe { DeviceBuffer::adopt(&member.cuda, span.address(), span.byte_len(), tensor) };
            let given = member.upload(&elements(DType::F32, &[1, 2]));
            member.cuda.copy(data.span(), given.span(), member.stream).expect("copied");
            let op = Op::AllReduce { count: 2, reduce: ReduceOp::Sum };
            let submit = || member.group.submit(op.clone(), DType::F32, None, (None, &data), member.stream);
            submit().and_then(|work| work.fence(member.stream)).expect("on its stream");
            assert_eq!(member.download(&data), elements(DType::F32, &[2, 4]));
            // The last handle is the operation's.
            drop(submit().expect("submitted"));
            drop(data);
        });
    }
}

#[test]
fn a_stream_that_is_captured_is_refused_and_the_group_goes_on() {
    for seed in seeds(10) {
        run(2, seed, |member| {
            let (group, stream) = (&member.group, member.stream);
            let op = Op::AllReduce { count: 2, reduce: ReduceOp::Sum };
            let data = member.upload(&elements(DType::F32, &[1, 2]));
            member.cuda.capture(stream, true).expect("a stream");
            let single = group.submit(op.clone(), DType::F32, None, (None, &data), stream).err();
            let batch = group.coalesce(stream, |batch| batch.add(op.clone(), DType::F32, None, (None, &data))).err();
            for (name, error) in
                [("all_reduce", single), ("all_reduce", batch), ("barrier", group.barrier(stream).err())]
            {
                let expected = "must run what it is given: operations cannot be captured into graphs";
                assert_eq!(error, Some(Error::usage(name, "stream", "being captured", expected)));
            }
            member.cuda.capture(stream, false).expect("a stream");
            let work = group.submit(op, DType::F32, None, (None, &data), stream).expect("submitted");
            work.fence(stream).expect("on its stream");
            assert_eq!(member.download(&data), elements(DType::F32, &[2, 4]));
        });
    }
}

#[test]
fn a_stream_of_another_device_is_refused_and_the_group_goes_on() {
    for seed in seeds(6) {
        run(2, seed, |member| {
            let (group, other) = (&member.group, member.cuda.create_stream(Device(1), false).expect("a stream"));
            let op = Op::AllReduce { count: 2, reduce: ReduceOp::Sum };
            let data = member.upload(&elements(DType::F32, &[1, 2]));
            let single = group.submit(op.clone(), DType::F32, None, (None, &data), other).err();
            let batch = group.coalesce(other, |batch| batch.add(op.clone(), DType::F32, None, (None, &data))).err();
            for (name, error) in
                [("all_reduce", single), ("all_reduce", batch), ("barrier", group.barrier(other).err())]
            {
                assert_eq!(error, Some(Error::usage(name, "stream", "one of cuda:1", "must be one of cuda:0")));
            }
            let work = group.submit(op, DType::F32, None, (None, &data), member.stream).expect("submitted");
            work.fence(member.stream).expect("on its stream");
            assert_eq!(member.download(&data), elements(DType::F32, &[2, 4]));
        });
    }
}

#[test]
fn a_capture_elsewhere_in_the_process_disturbs_no_operation() {
    for seed in seeds(10) {
        run(2, seed, |member| {
            let other = member.cuda.create_stream(DEVICE, false).expect("a stream");
            let data = member.upload(&elements(DType::F32, &[1, 2]));
            let op = Op::AllReduce { count: 2, reduce: ReduceOp::Sum };
            let work = member.group.submit(op, DType::F32, None, (None, &data), member.stream).expect("submitted");
            member.cuda.capture(other, true).expect("a stream");
            // The lane asks for the end and frees the memory.
            drop(data);
            work.wait().expect("done");
            member.group.group().barrier().expect("the group goes on");
            member.cuda.capture(other, false).expect("a stream");
        });
    }
}

#[test]
fn memory_where_elements_cannot_lie_is_refused_and_the_group_goes_on() {
    run(2, 1, |member| {
        let data = member.upload(&elements(DType::F64, &[1; 3]));
        let submit = |offset, byte_len, dtype| {
            let part = data.part(offset, byte_len).expect("within");
            let op = Op::AllReduce { count: byte_len / DType::byte_len(dtype), reduce: ReduceOp::Sum };
            member.group.submit(op, dtype, None, (None, &part), member.stream).and_then(|work| work.wait())
        };
        for (offset, byte_len, dtype) in [(1, 4, DType::F32), (4, 8, DType::F64), (2, 8, DType::Complex64)] {
            let error = submit(offset, byte_len, dtype).expect_err("it lies wrong");
            assert!(
                error.kind() == ErrorKind::Usage && error.to_string().contains("must lie at a multiple"),
                "{error}"
            );
        }
        // A complex number is two numbers.
        for (offset, byte_len, dtype) in [(4, 8, DType::Complex64), (4, 4, DType::F32), (3, 1, DType::U8)] {
            submit(offset, byte_len, dtype).expect("summed");
        }
        submit(1, 0, DType::F32).expect("nothing is summed");
    });
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

/// What a hook was told of: the names of operations, and how each ended.
#[derive(Default)]
struct Told(Mutex<Vec<(OpKind, bool)>>);

impl Hook for Told {
    fn after(&self, record: &Record, error: Option<&Error>) {
        self.0.lock().expect("not poisoned").push((record.op, error.is_none() && record.ended.is_some()));
    }
}

#[test]
fn operations_are_timed_recorded_and_told_to_hooks() {
    for seed in seeds(6) {
        let outcome = Simulation::new(2, seed).run(|rank| {
            let told = Arc::new(Told::default());
            let options = GroupOptions::default().hook(Arc::clone(&told) as Arc<dyn Hook>);
            let stack = Stack::new(rank.nccl.clone(), rank.cuda.clone(), rank.process.clone(), DEVICE);
            let layout = Layout::one_host(rank.rank, rank.size).expect("a layout");
            let timing = NcclOptions::default().timing(true).high_priority(true);
            let group = DeviceGroup::new(stack, layout, rank.store.clone(), timing, options).expect("a group");
            let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
            let data = DeviceBuffer::new(&rank.cuda, DEVICE, 64).expect("memory");
            rank.cuda.fill(data.span(), 0, stream).expect("filled");
            let op = Op::AllReduce { count: 16, reduce: ReduceOp::Sum };
            let work = group.submit(op, DType::F32, None, (None, &data), stream).expect("submitted");
            let bell = rank.process.bell();
            while !work.is_done() {
                bell.wait(bell.count(), Some(rank.process.now() + Duration::from_micros(50)));
            }
            let duration = work.duration();
            work.wait().expect("done");
            group.barrier(stream).expect("submitted").wait().expect("all came");
            let records = group.group().recorder().records();
            let told = told.0.lock().expect("not poisoned").clone();
            (duration, records.iter().map(|record| (record.op, record.sequence)).collect::<Vec<_>>(), told)
        });
        clean(&outcome, seed);
        for (duration, records, told) in outcome.results.into_iter().flatten() {
            assert!(duration.is_some_and(|duration| duration > Duration::ZERO && duration < Duration::from_secs(1)));
            assert_eq!(records, [(OpKind::AllReduce, 0), (OpKind::Barrier, 1)]);
            assert_eq!(told, [(OpKind::AllReduce, true), (OpKind::Barrier, true)]);
        }
    }
}

const GRID: Grid = Grid { blocks: 1, threads: 32 };
