//! The simulator itself: that data moves, what it finds, what faults do, and that a seed decides everything.

use std::time::Duration;

use super::{Fault, Finding, Outcome, SimRank, Simulation};
use crate::api::{
    Argument, Comm, CommConfig, Cuda, CudaCode, DataType, Device, EventKind, Grid, Nccl, Process, RedOp, Route, Span,
    Status, Stream, Transfer, UniqueId,
};
use crate::kernels;

const DEVICE: Device = Device(0);

/// Joins the communicator of all ranks, without waiting inside the library.
fn joined(rank: &SimRank) -> Comm {
    if rank.rank == 0 {
        let id = rank.nccl.unique_id().expect("an id");
        rank.store.set("id", id.0).expect("stored");
    }
    let id = UniqueId(rank.store.get("id").expect("there").try_into().expect("128 bytes"));
    let (number, size) = (rank.rank as i32, rank.size as i32);
    let (status, comm) = rank.nccl.init(DEVICE, number, size, &id, &CommConfig::default());
    assert_eq!(status, Status::IN_PROGRESS);
    settle(rank, comm);
    comm
}

fn settle(rank: &SimRank, comm: Comm) {
    let bell = rank.process.bell();
    while rank.nccl.async_error(comm) == Ok(Status::IN_PROGRESS) {
        bell.wait(0, Some(rank.process.now() + Duration::from_micros(50)));
    }
}

fn upload(rank: &SimRank, values: &[f32], stream: Stream) -> (Span, Span) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let host = rank.cuda.allocate_host(bytes.len()).expect("memory");
    let device = rank.cuda.allocate(DEVICE, bytes.len()).expect("memory");
    rank.cuda.write_host(host, &bytes).expect("written");
    rank.cuda.copy(device, host, stream).expect("copied");
    (host, device)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().expect("four"))).collect()
}

/// Whether two fills are found to be in no order, of which the first comes before a mark that the second's stream waits for, or after it.
fn races_beside_a_mark(comes_after: bool, seed: u64) -> bool {
    let outcome = Simulation::new(1, seed).run(move |rank| {
        let [one, other] = [0, 1].map(|_| rank.cuda.create_stream(DEVICE, false).expect("a stream"));
        let memory = rank.cuda.allocate(DEVICE, 8).expect("memory");
        let mark = rank.cuda.create_event(DEVICE, EventKind::Order).expect("an event");
        if !comes_after {
            rank.cuda.fill(memory, 1, one).expect("filled");
        }
        rank.cuda.record_event(mark, one).expect("recorded");
        if comes_after {
            rank.cuda.fill(memory, 1, one).expect("filled");
        }
        rank.cuda.wait_event(other, mark).expect("it waits");
        rank.cuda.fill(memory, 2, other).expect("filled");
        for stream in [one, other] {
            rank.cuda.synchronize_stream(stream).expect("done");
        }
        rank.cuda.free(DEVICE, memory).expect("freed");
    });
    outcome.findings.iter().any(|finding| matches!(finding, Finding::Race { .. }))
}

#[test]
fn what_comes_right_after_a_mark_is_not_before_it() {
    for seed in 0..20 {
        assert!(races_beside_a_mark(true, seed), "seed {seed}");
        assert!(!races_beside_a_mark(false, seed), "seed {seed}");
    }
}

/// Each rank adds its number to a sum on one stream and reads it back.
fn summed(size: usize, seed: u64) -> Outcome<Vec<f32>> {
    Simulation::new(size, seed).run(|rank| {
        let comm = joined(&rank);
        let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
        let (host, device) = upload(&rank, &[rank.rank as f32, 1.0], stream);
        rank.nccl.all_reduce(Transfer::within(device, 2, DataType::F32), RedOp::SUM, Route { comm, stream });
        settle(&rank, comm);
        rank.cuda.copy(host, device, stream).expect("copied");
        rank.cuda.synchronize_stream(stream).expect("done");
        let mut bytes = [0; 8];
        rank.cuda.read_host(host, &mut bytes).expect("read");
        rank.cuda.free(DEVICE, device).expect("freed");
        rank.cuda.free_host(host).expect("freed");
        floats(&bytes)
    })
}

#[test]
fn data_moves_and_nothing_is_found() {
    for (size, seed) in (1..=4).flat_map(|size| (0..20).map(move |seed| (size, seed))) {
        let outcome = summed(size, seed);
        let sum = (0..size).sum::<usize>() as f32;
        assert_eq!(outcome.results, vec![Some(vec![sum, size as f32]); size], "seed {seed}");
        assert_eq!(outcome.findings, [], "seed {seed}");
        assert_eq!((outcome.not_freed, outcome.left_over), (vec![(0, 0); size], vec![]));
    }
}

#[test]
fn a_seed_decides_everything() {
    let ends: Vec<Duration> = (0..8).map(|seed| summed(3, seed).ended).collect();
    let again: Vec<Duration> = (0..8).map(|seed| summed(3, seed).ended).collect();
    assert_eq!(ends, again);
    assert!(ends.iter().any(|end| *end != ends[0]));
}

/// A kernel on one stream and a copy from its memory on another, with or without what orders them.
fn two_streams(seed: u64, is_ordered: bool) -> Vec<Finding> {
    let outcome = Simulation::new(1, seed).run(move |rank| {
        let [compute, copies] = [(); 2].map(|()| rank.cuda.create_stream(DEVICE, false).expect("a stream"));
        let (host, device) = upload(&rank, &[1.0; 4], compute);
        let arguments = [Argument::Write(device), Argument::Real(2.0)];
        rank.cuda.launch(kernels::SCALE, Grid { blocks: 1, threads: 1 }, &arguments, compute).expect("launched");
        let event = rank.cuda.create_event(DEVICE, EventKind::Order).expect("an event");
        if is_ordered {
            rank.cuda.record_event(event, compute).expect("recorded");
            rank.cuda.wait_event(copies, event).expect("awaited");
        }
        rank.cuda.copy(host, device, copies).expect("copied");
        rank.cuda.synchronize_stream(copies).expect("done");
        rank.cuda.synchronize_stream(compute).expect("done");
    });
    outcome.findings
}

#[test]
fn what_nothing_orders_is_found_whatever_the_seed() {
    for seed in 0..30 {
        assert_eq!(two_streams(seed, true), [], "seed {seed}");
        let found = two_streams(seed, false);
        let both =
            |finding: &Finding| matches!(finding, Finding::Race { first, second, .. } if first.site != second.site);
        assert!(!found.is_empty() && found.iter().all(both), "seed {seed}: {found:?}");
    }
}

#[test]
fn memory_that_is_freed_too_early_is_found() {
    let outcome = Simulation::new(1, 3).run(|rank| {
        let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
        let (_, device) = upload(&rank, &[1.0; 4], stream);
        rank.cuda.free(DEVICE, device).expect("freed");
        rank.cuda.synchronize_stream(stream)
    });
    let found = &outcome.findings[..];
    assert!(matches!(found, [Finding::UseAfterFree { .. } | Finding::Race { .. }, ..]), "{found:?}");
}

#[test]
fn memory_that_is_freed_while_a_communicator_knows_it_is_found() {
    let outcome = Simulation::new(1, 3).run(|rank| {
        let comm = joined(&rank);
        let span = rank.cuda.allocate(DEVICE, 64).expect("memory");
        let made = rank.nccl.allocate(DEVICE, 64).expect("memory");
        let registration = rank.nccl.register(comm, span).expect("registered");
        rank.cuda.free(DEVICE, span).expect("freed");
        // What each has made, each takes back.
        let refused = (rank.cuda.free(DEVICE, made).is_err(), rank.nccl.free(span).is_success());
        let ends = [rank.nccl.deregister(comm, registration), rank.nccl.free(made), rank.nccl.abort(comm)];
        (refused, ends.iter().all(|status| status.is_success()))
    });
    assert_eq!(outcome.results, [Some(((true, false), true))]);
    assert!(matches!(outcome.findings[..], [Finding::StillKnown { rank: 0, .. }]), "{:?}", outcome.findings);
}

/// Whether memory is found to be used after its end, which is freed before an abort has passed, or when it has.
fn is_used_after_its_end(is_early: bool, seed: u64) -> bool {
    let fault = Fault::LaunchWaitsForAbort { launch: 0 };
    let outcome = Simulation::new(1, seed).fault(0, fault).run(move |rank| {
        let comm = joined(&rank);
        let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
        let (_, device) = upload(&rank, &[1.0; 4], stream);
        rank.cuda.synchronize_stream(stream).expect("done");
        let what = Transfer::within(device, 4, DataType::F32);
        assert_eq!(rank.nccl.all_reduce(what, RedOp::SUM, Route { comm, stream }), Status::IN_PROGRESS);
        // The stream has nothing to do by now, and will have.
        assert_eq!((rank.nccl.async_error(comm), rank.cuda.query_stream(stream)), (Ok(Status::IN_PROGRESS), Ok(true)));
        if is_early {
            rank.cuda.free(DEVICE, device).expect("freed");
        }
        assert_eq!(rank.nccl.abort(comm), Status::SUCCESS);
        rank.cuda.synchronize_stream(stream).expect("done");
        if !is_early {
            rank.cuda.free(DEVICE, device).expect("freed");
        }
    });
    assert_eq!(outcome.results, [Some(())]);
    assert!(outcome.findings.iter().all(|finding| matches!(finding, Finding::UseAfterFree { .. })));
    !outcome.findings.is_empty()
}

#[test]
fn what_is_begun_comes_to_its_stream_before_an_abort_has_passed() {
    for seed in 0..20 {
        assert!(is_used_after_its_end(true, seed) && !is_used_after_its_end(false, seed), "seed {seed}");
    }
}

#[test]
fn ranks_that_call_different_things_hang_and_are_told_apart() {
    let outcome = Simulation::new(2, 1).run(|rank| {
        let comm = joined(&rank);
        let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
        let (_, device) = upload(&rank, &[1.0; 4], stream);
        let count = 3 + rank.rank;
        rank.nccl.all_reduce(Transfer::within(device, count, DataType::F32), RedOp::SUM, Route { comm, stream });
        settle(&rank, comm);
        rank.cuda.synchronize_stream(stream)
    });
    assert_eq!(outcome.results, [None, None]);
    let [Finding::Mismatch { moves: false, ours, .. }, Finding::Stuck { threads }] = &outcome.findings[..] else {
        panic!("{:?}", outcome.findings);
    };
    assert!(ours.contains("ncclAllReduce of 3") && threads.len() == 2, "{ours} {threads:?}");
}

#[test]
fn a_communicator_in_progress_may_not_be_used() {
    let outcome = Simulation::new(1, 1).run(|rank| {
        let id = rank.nccl.unique_id().expect("an id");
        let (_, comm) = rank.nccl.init(DEVICE, 0, 1, &id, &CommConfig::default());
        let early = rank.nccl.count(comm);
        settle(&rank, comm);
        let late = rank.nccl.count(comm);
        (early, late, rank.nccl.abort(comm), rank.nccl.async_error(comm))
    });
    let [Some((early, late, aborted, after))] = outcome.results[..] else { panic!("{:?}", outcome.results) };
    assert_eq!((late, aborted, after), (Ok(1), Status::SUCCESS, Err(Status::INVALID_ARGUMENT)));
    if early.is_err() {
        let call = "ncclCommCount";
        assert!(outcome.findings.contains(&Finding::InProgress { rank: 0, call }), "{:?}", outcome.findings);
    }
    let call = "ncclCommGetAsyncError";
    assert_eq!(outcome.findings.last(), Some(&Finding::Gone { rank: 0, call }));
}

#[test]
fn a_dead_context_answers_everything_alike() {
    let fault = Fault::StickyError { launch: 0, code: CudaCode::ILLEGAL_ADDRESS.0 };
    let outcome = Simulation::new(1, 5).fault(0, fault).run(|rank| {
        let comm = joined(&rank);
        let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
        let (_, device) = upload(&rank, &[1.0; 4], stream);
        rank.nccl.all_reduce(Transfer::within(device, 4, DataType::F32), RedOp::SUM, Route { comm, stream });
        settle(&rank, comm);
        let bell = rank.process.bell();
        while rank.nccl.async_error(comm) != Ok(Status::UNHANDLED_CUDA) {
            bell.wait(0, Some(rank.process.now() + Duration::from_micros(10)));
        }
        // The driver knows of it once a call of its own was refused.
        (rank.cuda.sticky_error(DEVICE), rank.cuda.query_stream(stream).err(), rank.cuda.sticky_error(DEVICE))
    });
    let dead = Some(CudaCode::ILLEGAL_ADDRESS);
    assert_eq!(outcome.results, [Some((None, dead, dead))]);
}
