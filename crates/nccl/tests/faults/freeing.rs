//! Memory of which an operation has the last handle: who frees it, and who waits for that.

use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use phalanx_core::{DType, Op, ReduceOp};
use phalanx_nccl::api::{Cuda, Process};
use phalanx_nccl::group::{DeviceBuffer, NcclOptions};
use phalanx_nccl::sim::{Fault, SimRank, Simulation};

use crate::seats::{DEVICE, clean, group, seeds};

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
