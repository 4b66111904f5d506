//! Ends that take long or never come: what is kept until then, who is told, and who waits.

use std::time::Duration;

use phalanx_core::{Error, ErrorKind, GroupOptions, PeerReason, ReduceOp};
use phalanx_nccl::api::{Cuda, Grid, KernelId, Process};
use phalanx_nccl::group::{DeviceBuffer, NcclOptions};
use phalanx_nccl::sim::{Fault, Simulation};

use crate::seats::{DEVICE, clean, group, seeds};
use crate::summed;

/// How long an abort takes that takes long.
const LONG: Fault = Fault::AbortTakes { comm: 0, time: Duration::from_millis(300) };

/// The operation is called and does not come to its stream, where its end would be observed at once.
#[test]
fn memory_of_an_operation_that_failed_stays_until_the_abort_has_passed() {
    for seed in seeds(8) {
        let job = Simulation::new(2, seed).fault(0, Fault::LaunchWaitsForAbort { launch: 0 }).fault(0, LONG);
        let outcome = job.run(|rank| {
            let group = group(&rank, "group", NcclOptions::default()).expect("a group");
            summed(&rank, &group).expect_err("an operation never begins").kind()
        });
        clean(&outcome, seed);
        let is_right = |kind: &Option<ErrorKind>| matches!(kind, Some(ErrorKind::Timeout | ErrorKind::Aborted));
        assert!(outcome.results.iter().all(is_right), "seed {seed}: {:?}", outcome.results);
    }
}

/// Of more ranks than are asked for in one round.
#[test]
fn spans_without_an_end_end_nothing() {
    let outcome = Simulation::new(18, 7).run(|rank| {
        let options = NcclOptions::default().abort_timeout(Duration::MAX).unresponsive(Duration::MAX);
        let group = group(&rank, "group", options).expect("a group");
        summed(&rank, &group).expect("all come");
        group.leave(Duration::from_secs(10)).expect("it ends");
    });
    clean(&outcome, 7);
}

#[test]
fn memory_that_a_communicator_knows_stays_until_its_abort_has_passed() {
    for seed in seeds(8) {
        let outcome = Simulation::new(2, seed).fault(0, LONG).fault(1, LONG).run(|rank| {
            let group = group(&rank, "group", NcclOptions::default()).expect("a group");
            let memory = DeviceBuffer::new(&rank.cuda, DEVICE, 64).expect("memory");
            let known = group.register(&memory).expect("known");
            group.group().abort("enough");
            drop((known, memory));
        });
        clean(&outcome, seed);
    }
}

/// The communicator is abandoned by then, and its lane is gone.
#[test]
fn an_abort_that_comes_back_late_frees_what_was_left_behind() {
    for seed in seeds(6) {
        let late = Fault::AbortTakes { comm: 0, time: Duration::from_secs(3) };
        let job = Simulation::new(2, seed).fault(0, Fault::KernelNeverEnds { launch: 0 }).fault(0, late);
        let outcome = job.run(|rank| {
            let options = NcclOptions::default().abort_timeout(Duration::from_millis(400));
            let group = group(&rank, "group", options).expect("a group");
            summed(&rank, &group).expect_err("an operation never ends");
            group.leave(Duration::from_secs(10)).err().map(|error| error.to_string())
        });
        clean(&outcome, seed);
        let [Some(Some(told)), Some(None)] = &outcome.results[..] else { panic!("seed {seed}: {:?}", outcome.results) };
        assert!(told.contains("communicators that could not be ended in time: 1"), "seed {seed}: {told}");
    }
}

/// Rank 0 is done and its communicator does not end, which keeps nobody: rank 1 is told that it has left.
#[test]
fn a_communicator_that_does_not_end_keeps_no_rank_that_leaves() {
    for seed in seeds(6) {
        let outcome = Simulation::new(2, seed).fault(0, Fault::DestroyBlocks { comm: 0 }).run(|rank| {
            let options = NcclOptions::default().heartbeat(Duration::from_millis(50));
            let group = group(&rank, "group", options.abort_timeout(Duration::from_millis(400))).expect("a group");
            group.group().barrier().expect("all came");
            match rank.rank {
                0 => group.leave(Duration::from_secs(20)),
                _ => group.group().all_reduce(&mut [1.0_f32], ReduceOp::Sum),
            }
        });
        let [Some(Err(left)), Some(Err(missed))] = &outcome.results[..] else { panic!("{:?}", outcome.results) };
        assert!(left.to_string().contains("communicators that could not be ended in time: 1"), "seed {seed}: {left}");
        let is_left = matches!(missed, Error::Peer(peer) if peer.rank == 0 && peer.reason == PeerReason::Left);
        assert!(is_left, "seed {seed}: {missed}");
        assert!(outcome.findings.is_empty(), "seed {seed}: {:?}", outcome.findings);
        // The thread that is in the library stays there, and has nothing of the group.
        assert_eq!(outcome.left_over, ["nccl-end-0 of rank 0"], "seed {seed}");
        assert_eq!(outcome.not_freed, [(0, 0); 2], "seed {seed}");
    }
}

/// Communicators end once all ranks of the host have come to the end of theirs, and rank 0 has something else to do before.
#[test]
fn whoever_leaves_first_waits_for_the_others_as_long_as_it_says() {
    for seed in seeds(6) {
        let outcome = Simulation::new(2, seed).run(|rank| {
            let group = group(&rank, "group", NcclOptions::default()).expect("a group");
            group.group().barrier().expect("all came");
            if rank.rank == 0 {
                let (bell, until) = (rank.process.bell(), rank.process.now() + Duration::from_secs(30));
                while rank.process.now() < until {
                    bell.wait(bell.count(), Some(until));
                }
            }
            group.leave(Duration::from_secs(300)).err()
        });
        clean(&outcome, seed);
        assert_eq!(outcome.results, [Some(None), Some(None)], "seed {seed}");
    }
}

/// The new group gets no thread, and the abort of its communicator never returns.
#[test]
fn a_split_that_fails_waits_for_no_abort() {
    for seed in seeds(6) {
        // Rank 0 has three threads by then: the watch and the lane of the whole, and the watch of the part.
        let faults = [Fault::NoThread { thread: 3 }, Fault::AbortBlocks { comm: 1 }];
        let job = faults.into_iter().fold(Simulation::new(2, seed), |job, fault| job.fault(0, fault));
        let outcome = job.run(|rank| {
            let options = NcclOptions::default().heartbeat(Duration::from_millis(50));
            let whole = group(&rank, "group", options.abort_timeout(Duration::from_millis(400))).expect("a group");
            let begun = rank.process.now();
            let failed = whole.split(&[0], GroupOptions::default()).err();
            let took = rank.process.now() - begun;
            whole.group().barrier().expect("the whole group goes on");
            let left = whole.leave(Duration::from_secs(10)).err();
            (took, [failed, left].map(|error| error.map(|error| error.to_string())))
        });
        let [Some((took, [Some(failed), Some(left)])), Some((_, [None, None]))] = &outcome.results[..] else {
            panic!("seed {seed}: {:?}", outcome.results)
        };
        assert!(failed.contains("no thread is to be had for a communicator"), "seed {seed}: {failed}");
        assert!(*took < Duration::from_millis(400), "seed {seed}: {took:?}");
        assert!(left.contains("communicators that could not be ended in time: 1"), "seed {seed}: {left}");
        assert!(outcome.findings.is_empty(), "seed {seed}: {:?}", outcome.findings);
        assert_eq!(outcome.left_over, ["nccl-abort-0 of rank 0"], "seed {seed}");
        assert_eq!(outcome.not_freed, [(0, 0); 2], "seed {seed}");
    }
}

#[test]
fn whoever_waits_for_the_end_of_a_group_finds_nothing_of_it_after_that() {
    for seed in seeds(8) {
        let outcome = Simulation::new(2, seed).run(move |rank| {
            let group = group(&rank, "group", NcclOptions::default()).expect("a group");
            let host = group.group().clone();
            host.barrier().expect("all came");
            let work = host.all_reduce_async(vec![1.0_f32; 64], ReduceOp::Sum).expect("submitted");
            group.leave(Duration::from_secs(20)).expect("an end");
            // What was under way has come to its end, and nothing new begins.
            assert!(work.is_done(), "seed {seed}");
            assert_eq!(work.wait().expect("summed"), [2.0; 64]);
            let refused = host.barrier().expect_err("the group was left");
            assert!(refused.to_string().contains("this rank has left the group"), "seed {seed}: {refused}");
            drop(host);
            let memory = rank.cuda.memory_info(DEVICE).expect("a device");
            assert_eq!(memory.free, memory.total, "seed {seed}");
        });
        clean(&outcome, seed);
        assert!(outcome.results.iter().all(Option::is_some), "seed {seed}");
    }
}

/// Nobody calls the driver while the group asks its communicator how that is.
#[test]
fn a_context_that_the_library_finds_dead_first_is_told_as_dead() {
    for seed in seeds(4) {
        let outcome = Simulation::new(1, seed).run(|rank| {
            let group = group(&rank, "group", NcclOptions::default()).expect("a group");
            group.group().barrier().expect("alone");
            let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
            // The device knows no kernel of this number, and dies of it.
            let grid = Grid { blocks: 1, threads: 1 };
            rank.cuda.launch(KernelId(u32::MAX), grid, &[], stream).expect("submitted");
            let (bell, until) = (rank.process.bell(), rank.process.now() + Duration::from_secs(2));
            while rank.process.now() < until {
                bell.wait(bell.count(), Some(until));
            }
            group.group().barrier().expect_err("the context is dead").to_string()
        });
        let told = outcome.results[0].as_ref().expect("an end");
        assert!(told.contains("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), "seed {seed}: {told}");
    }
}
