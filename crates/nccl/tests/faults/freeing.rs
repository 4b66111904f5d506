//! Memory of which an operation has the last handle: who frees it, and who waits for that.

use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use phalanx_core::{DType, Op, ReduceOp};
use phalanx_nccl::api::{Cuda, Process, Stream};
use phalanx_nccl::group::{DeviceBuffer, DeviceWork, NcclOptions};
use phalanx_nccl::sim::{Fault, SimCuda, SimNccl, SimProcess, SimRank, Simulation};

use crate::seats::{DEVICE, Group, clean, group, seeds};

const SUM: Op = Op::AllReduce { count: 2, reduce: ReduceOp::Sum };

fn rest(rank: &SimRank, time: Duration) {
    let bell = rank.process.bell();
    bell.wait(bell.count(), Some(rank.process.now() + time));
}

/// On rank 0 the driver frees memory of the first group only after the second group's operation, to which rank 1 comes late. By then it is out.
#[test]
fn whoever_needs_memory_waits_for_what_is_about_to_be_freed() {
    for seed in seeds(8) {
        // Each group has made some for a barrier, and the operations have theirs.
        let job = Simulation::new(2, seed).fault(0, Fault::FreesWait).fault(0, Fault::OutOfMemory { allocation: 4 });
        let outcome = job.run(|rank| {
            let [freed, busy] =
                ["freed", "busy"].map(|scope| group(&rank, scope, NcclOptions::default()).expect("a group"));
            [&freed, &busy].into_iter().try_for_each(|group| group.group().barrier()).expect("all came");
            let [stream, aside] = [(); 2].map(|()| rank.cuda.create_stream(DEVICE, false).expect("a stream"));
            let [first, second] = [(); 2].map(|()| DeviceBuffer::new(&rank.cuda, DEVICE, 8).expect("memory"));
            [&first, &second].into_iter().for_each(|memory| rank.cuda.fill(memory.span(), 0, stream).expect("filled"));
            let run_busy = || busy.submit(SUM, DType::F32, None, (None, &second), stream).expect("submitted");
            let early = (rank.rank == 0).then(|| {
                let work = run_busy();
                work.fence(aside).expect("on its stream");
                work
            });
            let work = freed.submit(SUM, DType::F32, None, (None, &first), stream).expect("submitted");
            drop(first);
            work.wait().expect("summed");
            let needed = DeviceBuffer::new(&rank.cuda, DEVICE, 8).map(drop);
            let late = early.unwrap_or_else(|| {
                rest(&rank, Duration::from_millis(50));
                run_busy()
            });
            late.wait().expect("summed");
            needed
        });
        clean(&outcome, seed);
        assert_eq!(outcome.results, [Some(Ok(())), Some(Ok(()))], "seed {seed}");
    }
}

/// What keeps its memory for a while.
struct Slow {
    process: Arc<SimProcess>,
    time: Duration,
}

impl Drop for Slow {
    fn drop(&mut self) {
        let bell = self.process.bell();
        bell.wait(bell.count(), Some(self.process.now() + self.time));
    }
}

/// Submits a sum of which the operation alone keeps the memory; on rank 0 that takes so long to be freed. Rank 1 comes late, so that rank 0 has
/// dropped its handles before the end.
fn sum_slowly<const COUNT: usize>(
    (rank, group): (&SimRank, &Group),
    (memory, stream): (&DeviceBuffer<SimCuda>, Stream),
    times: [Duration; COUNT],
) -> DeviceWork<SimNccl, SimCuda, SimProcess> {
    if rank.rank == 1 {
        rest(rank, Duration::from_millis(5));
    }
    let lent = (0_u64..).zip(times).map(|(at, time)| {
        let time = if rank.rank == 0 { time } else { Duration::ZERO };
        let keeper = Slow { process: Arc::clone(&rank.process), time };
        // SAFETY: the memory is there until all operations have ended, and each is waited for.
        unsafe { DeviceBuffer::adopt(&rank.cuda, memory.span().address() + at * 8, 8, keeper) }
    });
    let lent: Vec<_> = lent.collect();
    let [first, last] = [lent.first(), lent.last()].map(|lent| lent.expect("there is one"));
    let input = (lent.len() > 1).then_some(first);
    group.submit(SUM, DType::F32, None, (input, last), stream).expect("submitted")
}

/// The first piece is freed soon, the second only after all patience is over.
#[test]
fn whoever_needs_memory_has_it_once_any_is_freed() {
    for seed in seeds(4) {
        let outcome = Simulation::new(2, seed).fault(0, Fault::OutOfMemory { allocation: 1 }).run(|rank| {
            let options = NcclOptions::default().abort_timeout(Duration::from_millis(400));
            let group = group(&rank, "group", options).expect("a group");
            let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
            let memory = DeviceBuffer::new(&rank.cuda, DEVICE, 16).expect("memory");
            rank.cuda.fill(memory.span(), 0, stream).expect("filled");
            let times = [50, 1_000].map(Duration::from_millis);
            sum_slowly((&rank, &group), (&memory, stream), times).wait().expect("summed");
            let needed = DeviceBuffer::new(&rank.cuda, DEVICE, 8).map(drop);
            group.leave(Duration::from_secs(10)).expect("an end");
            needed
        });
        clean(&outcome, seed);
        assert_eq!(outcome.results, [Some(Ok(())), Some(Ok(()))], "seed {seed}");
    }
}

/// Two groups are about to free something, and whoever needs it waits for both as long as for one.
#[test]
fn whoever_needs_memory_waits_so_long_and_no_longer() {
    for seed in seeds(4) {
        let outcome = Simulation::new(2, seed).fault(0, Fault::OutOfMemory { allocation: 1 }).run(|rank| {
            let options = || NcclOptions::default().abort_timeout(Duration::from_millis(400));
            let groups = ["one", "other"].map(|scope| group(&rank, scope, options()).expect("a group"));
            let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
            let memory = DeviceBuffer::new(&rank.cuda, DEVICE, 16).expect("memory");
            rank.cuda.fill(memory.span(), 0, stream).expect("filled");
            for group in &groups {
                let work = sum_slowly((&rank, group), (&memory, stream), [Duration::from_secs(2)]);
                work.wait().expect("summed");
            }
            let begun = rank.process.now();
            let needed = DeviceBuffer::new(&rank.cuda, DEVICE, 8).map(drop).map_err(|error| error.to_string());
            let waited = rank.process.now() - begun;
            groups.into_iter().for_each(|group| group.leave(Duration::from_secs(10)).expect("an end"));
            (needed, waited)
        });
        clean(&outcome, seed);
        let [Some((Err(told), waited)), Some((Ok(()), _))] = &outcome.results[..] else {
            panic!("seed {seed}: {outcome:?}")
        };
        assert!(told.contains("CUDA_ERROR_OUT_OF_MEMORY (2)"), "seed {seed}: {told}");
        assert!((400..500).contains(&waited.as_millis()), "seed {seed}: {waited:?}");
    }
}

/// The lane frees it itself then, which takes longer than the operation may.
#[test]
fn an_operation_that_has_ended_is_not_late_for_want_of_a_thread_that_frees_its_memory() {
    for seed in seeds(4) {
        // The watch and the lane have theirs.
        let outcome = Simulation::new(2, seed).fault(0, Fault::NoThread { thread: 2 }).run(|rank| {
            let group = group(&rank, "group", NcclOptions::default()).expect("a group");
            let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
            let memory = DeviceBuffer::new(&rank.cuda, DEVICE, 8).expect("memory");
            rank.cuda.fill(memory.span(), 0, stream).expect("filled");
            let begun = rank.process.now();
            let ended = sum_slowly((&rank, &group), (&memory, stream), [Duration::from_secs(3)]).wait();
            let took = rank.process.now() - begun;
            group.leave(Duration::from_secs(10)).expect("an end");
            ended.map(|()| took < Duration::from_secs(1))
        });
        clean(&outcome, seed);
        assert_eq!(outcome.results, [Some(Ok(true)), Some(Ok(true))], "seed {seed}");
    }
}

/// What another library keeps its memory by.
struct Keeper {
    dropped_on: Arc<Mutex<Vec<ThreadId>>>,
    panics: bool,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.dropped_on.lock().expect("no panic").push(thread::current().id());
        assert!(!self.panics, "this keeper panics, which is part of the test");
    }
}

/// One of the keepers panics, and the group ends all the same.
#[test]
fn one_thread_of_a_group_frees_all_that_its_operations_had() {
    for seed in seeds(6) {
        let outcome = Simulation::new(2, seed).run(|rank| {
            let group = group(&rank, "group", NcclOptions::default()).expect("a group");
            let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
            let memory = DeviceBuffer::new(&rank.cuda, DEVICE, 8).expect("memory");
            rank.cuda.fill(memory.span(), 0, stream).expect("filled");
            let dropped_on = Arc::new(Mutex::new(Vec::new()));
            for at in 0..4 {
                // Rank 0 has dropped its handle before the operation can end.
                if rank.rank == 1 {
                    rest(&rank, Duration::from_millis(5));
                }
                let keeper = Keeper { dropped_on: Arc::clone(&dropped_on), panics: rank.rank == 0 && at == 1 };
                // SAFETY: the memory is there until all operations have ended, and each is waited for.
                let lent = unsafe { DeviceBuffer::adopt(&rank.cuda, memory.span().address(), 8, keeper) };
                let work = group.submit(SUM, DType::F32, None, (None, &lent), stream).expect("submitted");
                drop(lent);
                work.wait().expect("summed");
            }
            group.leave(Duration::from_secs(10)).expect("an end");
            let dropped_on = dropped_on.lock().expect("no panic").clone();
            (dropped_on.len(), rank.rank == 1 || dropped_on.iter().all(|thread| *thread == dropped_on[0]))
        });
        clean(&outcome, seed);
        assert_eq!(outcome.results, [Some((4, true)), Some((4, true))], "seed {seed}");
    }
}
