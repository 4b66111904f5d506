//! What NCCL, CUDA and machines are known to do, by script: each ends in the right error within its bound, the process lives, and the next
//! communicator works.

mod ends;
mod freeing;
mod order;
#[path = "../jobs/seats.rs"]
mod seats;
mod signals;
mod store;
mod watching;

use std::time::Duration;

use phalanx_core::{DType, Error, ErrorKind, GroupOptions, Message, Op, PeerReason, ReduceOp, Result, Stuck, Waiting};
use phalanx_nccl::api::{Cuda, Process};
use phalanx_nccl::group::{DeviceBuffer, NcclOptions};
use phalanx_nccl::sim::{Fault, Finding, Outcome, SimRank, Simulation};
use seats::{DEVICE, Group, clean, group, seeds};

/// How a rank's first operation went, and the one of the next communicator.
struct End {
    first: Result<()>,
    took: Duration,
    next: Result<Vec<u8>>,
    abandoned: usize,
}

/// Three all-reduces of one group within a second each, then one of a new group of those ranks that are left.
fn lived(rank: &SimRank, without: Option<usize>) -> End {
    let options = || {
        let options =
            NcclOptions::default().heartbeat(Duration::from_millis(50)).unresponsive(Duration::from_millis(600));
        options.abort_timeout(Duration::from_millis(400)).compare_results(true)
    };
    let old = group(rank, "old", options()).expect("a group");
    let begun = rank.process.now();
    let mut first = Ok(());
    let mut took = Duration::ZERO;
    for _ in 0..3 {
        if first.is_ok() {
            first = summed(rank, &old).map(drop);
            took = rank.process.now() - begun;
        }
    }
    // What was compared is known a heartbeat late.
    let bell = rank.process.bell();
    for _ in 0..20 {
        let seen = bell.count();
        bell.wait(seen, Some(rank.process.now() + Duration::from_millis(50)));
        if first.is_ok() && old.group().barrier().is_err() {
            first = old.group().barrier();
            took = rank.process.now() - begun;
        }
    }
    let left: Vec<usize> = (0..rank.size).filter(|&other| Some(other) != without).collect();
    let next = match left.iter().position(|&other| other == rank.rank) {
        Some(number) => {
            let seat = SimRank {
                rank: number,
                size: left.len(),
                nccl: rank.nccl.clone(),
                cuda: rank.cuda.clone(),
                process: rank.process.clone(),
                store: rank.store.clone(),
            };
            group(&seat, "new", options()).and_then(|group| summed(&seat, &group))
        }
        None => summed(rank, &old),
    };
    End { first, took, next, abandoned: old.abandoned() }
}

/// One all-reduce over memory of the device.
fn summed(rank: &SimRank, group: &Group) -> Result<Vec<u8>> {
    let mut data = [1_u8; 2];
    let stream = rank.cuda.create_stream(DEVICE, false).map_err(|code| Error::setup("a stream", code))?;
    let memory = DeviceBuffer::new(&rank.cuda, DEVICE, 8)?;
    rank.cuda.fill(memory.span(), 0, stream).map_err(|code| Error::setup("a fill", code))?;
    let op = Op::AllReduce { count: 2, reduce: ReduceOp::Sum };
    let submitted = group.submit(op, DType::F32, None, (None, &memory), stream);
    if submitted.is_err() {
        // What the program has put on its stream itself, it waits for itself.
        let _ = rank.cuda.synchronize_stream(stream);
    }
    submitted?.wait()?;
    group.group().within(Duration::from_secs(1)).all_reduce(&mut data, ReduceOp::Sum)?;
    Ok(data.to_vec())
}

fn ran(size: usize, seed: u64, faults: &[(usize, Fault)], without: Option<usize>) -> Outcome<End> {
    let job = faults.iter().fold(Simulation::new(size, seed), |job, (rank, fault)| job.fault(*rank, *fault));
    job.run(move |rank| lived(&rank, without))
}

/// That a job of three ranks with a fault ended as it must: `is_right` looks at each rank's first error.
fn judge(
    faults: &[(usize, Fault)],
    without: Option<usize>,
    is_right: impl Fn(usize, &Error) -> bool,
) -> Vec<Outcome<End>> {
    let judged = seeds(6).map(|seed| {
        let outcome = ran(3, seed, faults, without);
        let stray = |finding: &&Finding| !matches!(finding, Finding::Mismatch { .. });
        assert_eq!(outcome.findings.iter().find(stray), None, "seed {seed}");
        let left = 3 - usize::from(without.is_some());
        for (rank, end) in outcome.results.iter().enumerate().filter(|(rank, _)| Some(*rank) != without) {
            let end = end.as_ref().unwrap_or_else(|| panic!("seed {seed}: rank {rank} did not end"));
            let error = end.first.as_ref().expect_err("a failure");
            assert!(is_right(rank, error), "seed {seed}: rank {rank}: {error}");
            assert!(end.took <= BOUND, "seed {seed}: rank {rank} took {:?}", end.took);
            let next = end.next.as_ref().unwrap_or_else(|error| panic!("seed {seed}: rank {rank}: next: {error}"));
            assert_eq!(next[..], [left as u8; 2], "seed {seed}");
        }
        outcome
    });
    judged.collect()
}

fn root(error: &Error) -> String {
    error.to_string()
}

fn is_timeout(error: &Error) -> bool {
    error.kind() == ErrorKind::Timeout || root(error).contains("not finished after")
}

#[test]
fn init_never_ends() {
    let outcomes = judge(&[(1, Fault::InitNeverEnds { comm: 0 })], None, |_, error| is_timeout(error));
    // The thread that is in the library stays there.
    for outcome in outcomes {
        let abandoned: Vec<usize> = outcome.results.iter().flatten().map(|end| end.abandoned).collect();
        assert_eq!((abandoned, outcome.left_over), (vec![0, 1, 0], vec!["nccl-1 of rank 1".to_owned()]));
    }
}

#[test]
fn in_progress_for_ever() {
    judge(&[(2, Fault::InProgressForEver { comm: 0 })], None, |_, error| is_timeout(error));
}

#[test]
fn an_error_comes_after_some_questions() {
    for (polls, status) in [(0, 6), (3, 2), (9, 1)] {
        judge(&[(1, Fault::AsyncError { comm: 0, polls, status })], None, |rank, error| {
            let says = root(error).contains(&format!("({status})"));
            says && (rank != 1 || error.kind() == ErrorKind::Device || error.kind() == ErrorKind::Aborted)
        });
    }
}

#[test]
fn a_kernel_never_ends() {
    judge(&[(0, Fault::KernelNeverEnds { launch: 1 })], None, |_, error| is_timeout(error));
}

#[test]
fn an_abort_blocks() {
    let faults = [(0, Fault::KernelNeverEnds { launch: 1 }), (0, Fault::AbortBlocks { comm: 0 })];
    for outcome in judge(&faults, None, |_, error| is_timeout(error)) {
        let abandoned: Vec<usize> = outcome.results.iter().flatten().map(|end| end.abandoned).collect();
        assert_eq!((abandoned, outcome.left_over), (vec![1, 0, 0], vec!["nccl-abort-0 of rank 0".to_owned()]));
        // What the device may still use is never freed.
        assert_ne!(outcome.not_freed[0], (0, 0));
        assert_eq!(outcome.not_freed[1..], [(0, 0); 2]);
    }
}

#[test]
fn an_abort_misses_children() {
    let faults = [(0, Fault::KernelNeverEnds { launch: 1 }), (0, Fault::AbortMissesChildren)];
    for outcome in judge(&faults, None, |_, error| is_timeout(error)) {
        assert_eq!((outcome.left_over, outcome.not_freed), (vec![], vec![(0, 0); 3]));
    }
}

#[test]
fn what_was_split_ends_with_the_whole_and_before_it() {
    for seed in seeds(12) {
        let job = (0..3).fold(Simulation::new(3, seed), |job, rank| job.fault(rank, Fault::AbortMissesChildren));
        let outcome = job.run(|rank| {
            let whole = group(&rank, "whole", NcclOptions::default()).expect("a group");
            let part = whole.split(&[0, 1], GroupOptions::default()).expect("split");
            // Rank 1 does not come to the part's operation, and then ends the whole.
            let mut data = [1.0_f32; 2];
            match &part {
                Some(part) if rank.rank == 0 => part.group().all_reduce(&mut data, ReduceOp::Sum).err(),
                _ if rank.rank == 1 => {
                    whole.group().abort("enough");
                    part.and_then(|part| part.group().barrier().err())
                }
                _ => whole.group().barrier().err(),
            }
        });
        clean(&outcome, seed);
        let told: Vec<String> =
            outcome.results.into_iter().flatten().flatten().map(|error| error.to_string()).collect();
        assert!(told.len() == 3 && told.iter().all(|told| told.contains("rank 1: enough")), "seed {seed}: {told:?}");
    }
}

/// Rank 1 does not come to what the whole calls. The part's own numbers of its ranks are others than the whole's.
#[test]
fn what_was_split_names_whom_the_whole_has_lost() {
    for seed in seeds(6) {
        let outcome = Simulation::new(3, seed).run(|rank| {
            let whole = group(&rank, "whole", NcclOptions::default()).expect("a group");
            let part = whole.split(&[2, 0], GroupOptions::default()).expect("split");
            let Some(part) = part else {
                let bell = rank.process.bell();
                bell.wait(bell.count(), Some(rank.process.now() + Duration::from_secs(4)));
                return None;
            };
            let late = whole.group().within(Duration::from_secs(1)).all_reduce(&mut [1.0_f32], ReduceOp::Sum);
            assert!(late.is_err(), "rank 1 does not come");
            // The whole tells it a moment later.
            let error = loop {
                if let Err(error) = part.group().barrier() {
                    break error;
                }
            };
            Some((error.to_string(), error.culprits()))
        });
        clean(&outcome, seed);
        let ends: Vec<_> = outcome.results.into_iter().flatten().flatten().collect();
        assert!(ends.len() == 2 && ends.iter().any(|(_, culprits)| culprits[..] == [1]), "seed {seed}: {ends:?}");
        for (told, culprits) in ends {
            // Who is told by the other has words alone.
            assert!(culprits.is_empty() || culprits == [1], "seed {seed}: {told}: {culprits:?}");
            assert!(told.contains("waiting for rank 1"), "seed {seed}: {told}");
        }
    }
}

#[test]
fn a_destroy_after_an_abort_would_hang() {
    let faults = [(1, Fault::KernelNeverEnds { launch: 0 }), (1, Fault::DestroyHangsAfterAbort)];
    for outcome in judge(&faults, None, |_, error| is_timeout(error)) {
        assert_eq!(outcome.left_over, Vec::<String>::new());
    }
}

#[test]
fn a_result_is_wrong() {
    judge(&[(1, Fault::WrongResult { launch: 0 })], None, |_, error| {
        let is_peer = matches!(error, Error::Peer(peer) if peer.rank == 1 && peer.reason == PeerReason::Corrupt);
        is_peer || root(error).contains("rank 1 sent corrupt data")
    });
}

/// Of two results nobody can say which is wrong, so whichever rank it is, both are named.
#[test]
fn one_of_two_results_is_wrong() {
    for (wrong, seed) in [0, 1].into_iter().flat_map(|wrong| seeds(6).map(move |seed| (wrong, seed))) {
        let outcome = ran(2, seed, &[(wrong, Fault::WrongResult { launch: 0 })], None);
        let errors = outcome.results.into_iter().map(|end| end.expect("it ended").first.expect_err("a failure"));
        let errors: Vec<Error> = errors.collect();
        assert!(errors.iter().any(|error| error.culprits() == [0, 1]), "seed {seed}: {errors:?}");
        for error in errors {
            let told = error.to_string();
            let words = "ranks 0 and 1 sent corrupt data: operation 0 gave no result that most ranks got";
            assert!(told.contains(words), "seed {seed}: {told}");
        }
    }
}

#[test]
fn memory_is_out() {
    // The first allocation of the second all-reduce over memory of the host: the others are told why.
    judge(&[(2, Fault::OutOfMemory { allocation: 1 })], None, |_, error| {
        root(error).contains("CUDA_ERROR_OUT_OF_MEMORY (2)")
    });
}

/// What is kept for later operations is given up for one that needs memory now.
#[test]
fn memory_that_is_kept_is_freed_where_it_is_out() {
    for seed in seeds(4) {
        let outcome = Simulation::new(2, seed).fault(1, Fault::OutOfMemory { allocation: 1 }).run(|rank| {
            let group = group(&rank, "group", NcclOptions::default()).expect("a group");
            group.group().all_reduce(&mut [1.0_f32], ReduceOp::Sum).expect("summed");
            let bell = rank.process.bell();
            bell.wait(bell.count(), Some(rank.process.now() + Duration::from_millis(10)));
            group.group().all_reduce(&mut [1.0_f32; 1024], ReduceOp::Sum).expect("summed");
        });
        clean(&outcome, seed);
    }
}

#[test]
fn a_context_dies() {
    let fault = Fault::StickyError { launch: 1, code: 719 };
    for outcome in judge(&[(1, fault)], Some(1), |_, error| root(error).contains("CUDA_ERROR_LAUNCH_FAILED (719)")) {
        let end = outcome.results[1].as_ref().expect("the process lives");
        let first = end.first.as_ref().expect_err("a failure");
        let is_sticky = matches!(first, Error::Device(device) if device.sticky && device.code == 719);
        assert!(is_sticky && end.next.is_err(), "{first}");
        assert!(end.took <= BOUND);
    }
}

#[test]
fn a_rank_vanishes() {
    for calls in [3, 40, 90] {
        judge(&[(2, Fault::Vanishes { calls })], Some(2), |_, error| {
            let is_peer =
                matches!(error, Error::Peer(peer) if peer.rank == 2 && peer.reason == PeerReason::Unresponsive);
            let is_missed = matches!(error, Error::Timeout(timeout) if timeout.stuck[0].peer == 2);
            is_peer || is_missed || root(error).contains("rank 2")
        });
    }
}

/// The library only says that some rank failed: which, the group finds out.
#[test]
fn a_rank_that_the_library_has_lost_is_named() {
    for calls in [40, 90] {
        let faults = [(0, Fault::TellsOfTheVanished), (1, Fault::TellsOfTheVanished), (2, Fault::Vanishes { calls })];
        judge(&faults, Some(2), |_, error| {
            let is_device = error.kind() == ErrorKind::Device || root(error).contains("(6)");
            !is_device && root(error).contains("rank 2")
        });
    }
}

/// A rank of a pipeline is done and leaves while the others are not.
#[test]
fn who_has_left_is_not_missed_where_it_has_no_part() {
    for seed in seeds(4) {
        let outcome = Simulation::new(3, seed).run(|rank| {
            let group = group(&rank, "group", NcclOptions::default()).expect("a group");
            let host = group.group().within(Duration::from_secs(5));
            host.barrier().expect("all came");
            match rank.rank {
                0 => host.recv(&mut [0_u8], 1, 0).map(drop),
                1 => {
                    let bell = rank.process.bell();
                    bell.wait(bell.count(), Some(rank.process.now() + Duration::from_millis(1_500)));
                    host.send(&[7_u8], 0, 0)
                }
                _ => Ok(()),
            }
        });
        clean(&outcome, seed);
        assert!(
            outcome.results.iter().all(|ended| matches!(ended, Some(Ok(())))),
            "seed {seed}: {:?}",
            outcome.results
        );
    }
}

#[test]
fn ranks_meet_over_every_operation_however_many_are_queued() {
    for seed in seeds(4) {
        let outcome = Simulation::new(2, seed).run(|rank| {
            let group = group(&rank, "group", NcclOptions::default().strict(true)).expect("a group");
            let host = group.group();
            if rank.rank == 0 {
                let works: Vec<_> = (0..24).map(|_| host.all_reduce_async(vec![1.0_f32], ReduceOp::Sum)).collect();
                works.into_iter().try_for_each(|work| work?.wait().map(drop))?;
            } else {
                let bell = rank.process.bell();
                bell.wait(bell.count(), Some(rank.process.now() + Duration::from_millis(100)));
                (0..24).try_for_each(|_| host.all_reduce(&mut [1.0_f32], ReduceOp::Sum))?;
            }
            host.barrier()?;
            let keys = rank.store.scope("group").list_keys().expect("listed");
            Ok::<_, Error>(keys.iter().filter(|key| key.contains("meeting")).count())
        });
        clean(&outcome, seed);
        let kept: Vec<_> = outcome.results.into_iter().flatten().map(|ended| ended.expect("summed")).collect();
        assert!(kept.len() == 2 && kept.iter().all(|&kept| kept <= 4), "seed {seed}: {kept:?}");
    }
}

/// Each rank frees what one group's operations needed while the other group's run, which wait for the other rank.
#[test]
fn two_groups_do_not_wait_for_each_other_to_free_memory() {
    for seed in seeds(20) {
        let job = Simulation::new(2, seed).fault(0, Fault::FreesWait).fault(1, Fault::FreesWait);
        let outcome = job.run(|rank| {
            let groups = ["one", "other"].map(|scope| group(&rank, scope, NcclOptions::default()).expect("a group"));
            let works = (0..8).flat_map(|_| groups.iter()).map(|group| {
                let data = vec![1.0_f32; 8];
                group.group().all_reduce_async(data, ReduceOp::Sum)
            });
            let works: Vec<_> = works.collect();
            works.into_iter().try_for_each(|work| work?.wait().map(drop)).err()
        });
        clean(&outcome, seed);
        assert_eq!(outcome.results, [Some(None), Some(None)], "seed {seed}");
    }
}

/// The same of memory that is the program's own, and on which the operation has the last handle.
#[test]
fn two_groups_do_not_wait_for_each_other_to_free_what_the_program_has_dropped() {
    for seed in seeds(20) {
        let job = Simulation::new(2, seed).fault(0, Fault::FreesWait).fault(1, Fault::FreesWait);
        let outcome = job.run(|rank| {
            let groups = ["one", "other"].map(|scope| group(&rank, scope, NcclOptions::default()).expect("a group"));
            let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
            let works = (0..8).flat_map(|_| groups.iter()).map(|group| {
                let memory = DeviceBuffer::new(&rank.cuda, DEVICE, 8)?;
                rank.cuda.fill(memory.span(), 0, stream).expect("filled");
                let op = Op::AllReduce { count: 2, reduce: ReduceOp::Sum };
                group.submit(op, DType::F32, None, (None, &memory), stream)
            });
            let works: Vec<_> = works.collect();
            works.into_iter().try_for_each(|work| work?.wait()).err()
        });
        clean(&outcome, seed);
        assert_eq!(outcome.results, [Some(None), Some(None)], "seed {seed}");
    }
}

/// The operation's memory is there, what the check for NaN needs is not: it has its number by then.
#[test]
fn the_others_are_told_of_an_operation_that_does_not_begin() {
    for seed in seeds(4) {
        let outcome = Simulation::new(2, seed).fault(1, Fault::OutOfMemory { allocation: 1 }).run(|rank| {
            let group = group(&rank, "group", NcclOptions::default().check_nan(true)).expect("a group");
            let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
            let memory = DeviceBuffer::new(&rank.cuda, DEVICE, 8).expect("memory");
            rank.cuda.fill(memory.span(), 0, stream).expect("filled");
            let op = Op::AllReduce { count: 2, reduce: ReduceOp::Sum };
            let ends = [0; 2].map(|_| {
                let work = group.submit(op.clone(), DType::F32, None, (None, &memory), stream);
                work.and_then(|work| work.wait()).err()
            });
            rank.cuda.synchronize_stream(stream).expect("done");
            ends
        });
        clean(&outcome, seed);
        for (rank, [first, second]) in outcome.results.into_iter().flatten().enumerate() {
            let (first, second) = (first.expect("a failure"), second.expect("a failure"));
            let kind = if rank == 1 { ErrorKind::Device } else { ErrorKind::Aborted };
            assert_eq!((first.kind(), second.kind()), (kind, ErrorKind::Aborted), "seed {seed}: {first}");
            assert!(first.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY (2)"), "seed {seed}: {first}");
        }
    }
}

#[test]
fn who_does_not_come_is_named_with_its_last_call() {
    let outcome = Simulation::new(3, 1).run(|rank| {
        let group = group(&rank, "group", NcclOptions::default()).expect("a group");
        let host = group.group().within(Duration::from_secs(2));
        host.barrier().expect("all came");
        if rank.rank == 1 {
            let bell = rank.process.bell();
            bell.wait(bell.count(), Some(rank.process.now() + Duration::from_secs(5)));
            return None;
        }
        host.all_reduce(&mut [1.0_f32], ReduceOp::Sum).err()
    });
    let first = outcome.results.iter().flatten().flatten().find_map(|error| match error {
        Error::Timeout(timeout) => Some(timeout.stuck.clone()),
        _ => None,
    });
    let stuck = first.expect("a timeout");
    assert!(stuck.len() == 1 && stuck[0].peer == 1, "{stuck:?}");
    let Waiting::Coming { last: Some(last) } = &stuck[0].on else { panic!("{stuck:?}") };
    assert!(last.sequence == 0 && last.site.contains("faults/main.rs"), "{last:?}");
}

/// Rank 0 receives from ranks 1 and 2 in one batch. Whichever of them it names first, who came is not blamed for who did not.
#[test]
fn who_does_not_come_to_a_batch_is_named() {
    for (seed, (absent, first)) in (0..).zip([(1, 1), (1, 2), (2, 1), (2, 2)]) {
        let outcome = Simulation::new(3, seed).run(move |rank| {
            let group = group(&rank, "group", NcclOptions::default()).expect("a group");
            let host = group.group().within(Duration::from_secs(2));
            host.barrier().expect("all came");
            let from = |peer| Message::Recv { data: vec![0_u8], from: Some(peer), tag: 0 };
            if rank.rank == 0 {
                return host.batch(vec![from(first), from(3 - first)]).err();
            }
            if rank.rank != absent {
                let sent = host.batch(vec![Message::Send { data: vec![7_u8], to: 0, tag: 0 }]);
                assert!(sent.is_ok(), "{sent:?}");
            }
            let bell = rank.process.bell();
            bell.wait(bell.count(), Some(rank.process.now() + Duration::from_secs(5)));
            None
        });
        let errors: Vec<Error> = outcome.results.into_iter().flatten().flatten().collect();
        let [Error::Timeout(timeout)] = &errors[..] else { panic!("{errors:?}") };
        assert_eq!(timeout.stuck, [Stuck { peer: absent, on: Waiting::Giving }], "rank 0 named {first} first");
    }
}

#[test]
fn ranks_that_call_different_things_are_told() {
    for (strict, seed) in [false, true].into_iter().flat_map(|strict| (0..6).map(move |seed| (strict, seed))) {
        let outcome = Simulation::new(2, seed).run(move |rank| {
            let options = NcclOptions::default().strict(strict).heartbeat(Duration::from_millis(20));
            let group = group(&rank, "group", options).expect("a group");
            let mut data = vec![1.0_f32; 2 + rank.rank];
            let begun = rank.process.now();
            let error = group.group().all_reduce(&mut data, ReduceOp::Sum).expect_err("they differ");
            (error, rank.process.now() - begun, group.group().barrier().is_err())
        });
        let ends: Vec<_> = outcome.results.into_iter().flatten().collect();
        assert!(ends.iter().all(|(error, took, _)| error.to_string().contains("count") && *took < BOUND), "{ends:?}");
        // Whose call is not yet under way when its group fails of it gets that as the cause.
        let is_desync = |error: &Error| match error {
            Error::Aborted(aborted) => aborted.cause.as_ref().is_some_and(|cause| cause.kind() == ErrorKind::Desync),
            other => other.kind() == ErrorKind::Desync,
        };
        assert!(ends.iter().any(|(error, ..)| is_desync(error)), "{ends:?}");
        // Without the meeting before it, the library may have come to it.
        assert!(!strict || outcome.findings.is_empty(), "{:?}", outcome.findings);
    }
}

#[test]
fn an_abort_by_choice_reaches_the_others() {
    let outcome = Simulation::new(3, 4).run(|rank| {
        let group = group(&rank, "group", NcclOptions::default()).expect("a group");
        let host = group.group();
        host.barrier().expect("all came");
        if rank.rank == 2 {
            host.abort("enough");
        }
        host.all_reduce(&mut [1.0_f32], ReduceOp::Sum).expect_err("it is over").to_string()
    });
    assert!(outcome.results.iter().flatten().all(|told| told.contains("rank 2: enough")), "{:?}", outcome.results);
    clean(&outcome, 4);
}

/// The time of an operation, and what finding out and telling may add.
const BOUND: Duration = Duration::from_millis(4_000);
