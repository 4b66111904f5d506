//! A store that stalls, beside ranks that live: it is no rank's fault, and makes no deadline late.

use std::time::Duration;

use phalanx_core::{DType, Error, Op, ReduceOp};
use phalanx_nccl::api::{Cuda, Process};
use phalanx_nccl::group::{DeviceBuffer, NcclOptions};
use phalanx_nccl::sim::{Fault, SimRank, Simulation};

use crate::seats::{DEVICE, Group, clean, group, seeds};

/// A job whose store stalls for all ranks, once they have a communicator.
fn job(size: usize, seed: u64, until: Duration) -> Simulation {
    let stall = Fault::StoreStalls { from: Duration::from_secs(1), until };
    (0..size).fold(Simulation::new(size, seed), |job, rank| job.fault(rank, stall))
}

fn wait(rank: &SimRank, until: Duration) {
    let bell = rank.process.bell();
    while rank.process.now() < until {
        bell.wait(bell.count(), Some(until));
    }
}

#[test]
fn a_store_that_stalls_is_no_failure_of_ranks() {
    for seed in seeds(6) {
        let outcome = job(3, seed, Duration::from_secs(4)).run(move |rank| {
            let options = NcclOptions::default().heartbeat(Duration::from_millis(50));
            let group = group(&rank, "group", options.unresponsive(Duration::from_millis(600))).expect("a group");
            for turn in 0..60 {
                let summed = group.group().all_reduce(&mut [1.0_f32], ReduceOp::Sum);
                assert!(summed.is_ok(), "seed {seed}: rank {} in turn {turn}: {summed:?}", rank.rank);
                wait(&rank, Duration::from_millis(100) * (turn + 1));
            }
        });
        clean(&outcome, seed);
    }
}

/// One all-reduce that nobody waits for, so that the watch alone ends it: its error, and after how long.
fn watched(rank: &SimRank, group: &Group) -> (Error, Duration) {
    let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
    let memory = DeviceBuffer::new(&rank.cuda, DEVICE, 8).expect("memory");
    rank.cuda.fill(memory.span(), 0, stream).expect("filled");
    let begun = rank.process.now();
    let op = Op::AllReduce { count: 2, reduce: ReduceOp::Sum };
    let work = group.submit(op, DType::F32, None, (None, &memory), stream).expect("submitted");
    while !work.is_done() {
        wait(rank, rank.process.now() + Duration::from_millis(10));
    }
    let took = rank.process.now() - begun;
    (work.wait().expect_err("it never ends"), took)
}

#[test]
fn a_store_that_stalls_makes_no_deadline_late() {
    for seed in seeds(4) {
        let job = job(8, seed, Duration::from_secs(60)).fault(0, Fault::KernelNeverEnds { launch: 1 });
        let outcome = job.run(|rank| {
            let group = group(&rank, "group", NcclOptions::default()).expect("a group");
            group.group().barrier().expect("all came");
            wait(&rank, Duration::from_secs(2));
            watched(&rank, &group)
        });
        clean(&outcome, seed);
        for (error, took) in outcome.results.into_iter().flatten() {
            assert!(matches!(error, Error::Timeout(_)), "seed {seed}: {error}");
            // One call of the store may be under way, and one is made to hear who is missing.
            let bound = Duration::from_secs(2) + 2 * Duration::from_millis(250) + Duration::from_millis(50);
            assert!(took <= bound, "seed {seed}: {took:?}");
        }
    }
}
