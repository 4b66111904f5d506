//! The transport of one host: the list that every transport goes through, pieces of all sizes, ranks that call different things or go away,
//! and a bug that must be found. On simulated devices, whose memory and events ranks lend each other as processes do.

#[path = "../jobs/memory.rs"]
mod memory;
#[path = "../jobs/seats.rs"]
#[allow(dead_code, reason = "groups over NCCL are made elsewhere")]
mod seats;

use std::sync::Arc;
use std::time::Duration;

use phalanx_core::{DType, Error, ErrorKind, GroupOptions, Layout, Op, ReduceOp, Result};
use phalanx_nccl::api::{Comm, Cuda, Nccl, Process, Status, UniqueId};
use phalanx_nccl::conformance::{Candidate, elements, trials};
use phalanx_nccl::group::{DeviceBuffer, DeviceGroup, NcclOptions, Stack};
use phalanx_nccl::same_host::{MOST_RANKS, SameHost};
use phalanx_nccl::sim::{Fault, Finding, Plant, SimCuda, SimProcess, SimRank, Simulation};

use memory::Memory;
use seats::{DEVICE, clean, seeds};

type Transport = SameHost<SimCuda, SimProcess>;
type Group = DeviceGroup<Transport, SimCuda, SimProcess>;

fn transport(rank: &SimRank, piece: usize) -> Arc<Transport> {
    let (cuda, process) = (Arc::clone(&rank.cuda), Arc::clone(&rank.process));
    Arc::new(SameHost::new(cuda, process, rank.store.scope("same-host")).piece(piece))
}

fn stack(rank: &SimRank, transport: &Arc<Transport>) -> Stack<Transport, SimCuda, SimProcess> {
    Stack::new(Arc::clone(transport), Arc::clone(&rank.cuda), Arc::clone(&rank.process), DEVICE)
}

fn group(rank: &SimRank, transport: &Arc<Transport>) -> Result<Group> {
    let layout = Layout::one_host(rank.rank, rank.size)?;
    let options = GroupOptions::default().timeout(Duration::from_secs(2));
    DeviceGroup::new(stack(rank, transport), layout, rank.store.scope("group"), NcclOptions::default(), options)
}

#[test]
fn the_list_is_passed_in_every_world() {
    for seed in seeds(MOST_RANKS as u64) {
        let size = 1 + (seed % MOST_RANKS as u64) as usize;
        let piece = [1 << 10, 4 << 10, 1 << 20][(seed % 3) as usize];
        let outcome = Simulation::new(size, seed).run(move |rank| {
            let transport = transport(&rank, piece);
            let layout = Layout::one_host(rank.rank, rank.size).expect("a layout");
            let stack = stack(&rank, &transport);
            let candidate = Candidate::new(stack, layout, rank.store, Duration::from_secs(5)).expect("a group");
            let candidate = candidate.knowing_nan_check();
            trials().iter().map(|trial| (trial.name(), trial.run(&candidate))).collect::<Vec<_>>()
        });
        for (rank, verdicts) in outcome.results.iter().enumerate() {
            for (name, verdict) in verdicts.as_ref().unwrap_or_else(|| panic!("seed {seed}: {:?}", outcome.findings)) {
                let is_skipped = *name == "known memory" || (size == 1 && ["messages", "batches"].contains(name));
                let is_right = verdict.as_ref().is_ok_and(|skipped| skipped.is_some() == is_skipped);
                assert!(is_right, "seed {seed}: {name} on rank {rank} of {size}: {verdict:?}");
            }
        }
        clean(&outcome, seed);
    }
}

/// What is on the device.
fn download(rank: &SimRank, memory: &Memory) -> Vec<u8> {
    memory::download(&rank.cuda, rank.cuda.create_stream(DEVICE, false).expect("a stream"), memory)
}

fn upload(rank: &SimRank, bytes: &[u8]) -> Memory {
    memory::upload(&rank.cuda, rank.cuda.create_stream(DEVICE, false).expect("a stream"), bytes)
}

/// Lengths around one piece and several: collectives and messages of all of them, one after the other with no wait between.
#[test]
fn lengths_about_pieces_are_moved_whole() {
    let counts = [1_usize, 127, 128, 129, 256, 257, 1000];
    for seed in seeds(8) {
        let size = 2 + (seed % 3) as usize;
        let outcome = Simulation::new(size, seed).run(move |rank| {
            let transport = transport(&rank, 1 << 10);
            let group = group(&rank, &transport).expect("a group");
            let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
            let (next, before) = ((rank.rank + 1) % size, (rank.rank + size - 1) % size);
            let own = |count: usize, of: usize| {
                elements(DType::I64, &(0..count).map(|at| (at * 7 + of) as i64).collect::<Vec<_>>())
            };
            let mut kept = Vec::new();
            for count in counts {
                let (given, summed) = (upload(&rank, &own(count, rank.rank)), upload(&rank, &vec![0; count * 8]));
                let gathered = upload(&rank, &vec![0; size * count * 8]);
                let arrived = upload(&rank, &vec![0; count * 8]);
                let none = DeviceBuffer::new(&rank.cuda, DEVICE, 0).expect("memory");
                let sum = Op::AllReduce { count, reduce: ReduceOp::Sum };
                let gather = Op::AllGather { counts: phalanx_core::Counts::Even(count) };
                let works = [
                    group.submit(sum, DType::I64, None, (Some(&given), &summed), stream).expect("submitted"),
                    group.submit(gather, DType::I64, None, (Some(&given), &gathered), stream).expect("submitted"),
                ];
                let crossed = group.coalesce(stream, |batch| {
                    batch.add(Op::Send { count, to: next, tag: 0 }, DType::I64, None, (Some(&given), &none));
                    batch.add(
                        Op::Recv { count, from: Some(before), tag: 0 },
                        DType::I64,
                        None,
                        (Some(&none), &arrived),
                    );
                });
                let crossed = crossed.expect("submitted");
                kept.push((count, works, crossed, given, [summed, gathered, arrived]));
            }
            for (count, works, crossed, _given, [summed, gathered, arrived]) in kept {
                works.into_iter().chain([crossed]).for_each(|work| work.wait().expect("done"));
                let total = |at: usize| (0..size).map(|of| (at * 7 + of) as i64).sum();
                assert_eq!(download(&rank, &summed), elements(DType::I64, &(0..count).map(total).collect::<Vec<_>>()));
                assert_eq!(download(&rank, &gathered), (0..size).flat_map(|of| own(count, of)).collect::<Vec<_>>());
                assert_eq!(download(&rank, &arrived), own(count, before));
            }
        });
        clean(&outcome, seed);
        assert!(outcome.results.iter().all(Option::is_some), "seed {seed}");
    }
}

/// Every byte of a result depends on others' memory being waited for: without those waits the simulator must see it.
#[test]
fn a_wait_for_another_process_that_is_missing_is_found() {
    let found = seeds(6).filter(|&seed| {
        let outcome = Simulation::new(2, seed).plant(Plant::PeerWaits).run(|rank| {
            let transport = transport(&rank, 4 << 10);
            let group = group(&rank, &transport).expect("a group");
            let mut data = vec![rank.rank as f32; 300];
            group.group().all_reduce(&mut data, ReduceOp::Sum)
        });
        outcome.findings.iter().any(|finding| matches!(finding, Finding::Race { .. }))
    });
    assert_eq!(found.count(), seeds(6).count());
}

fn told(seed: u64, size: usize, run: impl Fn(&SimRank, &Transport) -> String + Send + Sync + 'static) -> Vec<String> {
    let outcome = Simulation::new(size, seed).run(move |rank| run(&rank, &transport(&rank, 1 << 10)));
    outcome.results.into_iter().map(|words| words.expect("an end")).collect()
}

/// A communicator whose calls wait, of all ranks.
fn joined(rank: &SimRank, transport: &Transport, id: &str) -> (Status, Comm) {
    let config = phalanx_nccl::api::CommConfig { blocking: true, ..Default::default() };
    let id = if rank.rank == 0 {
        let made = transport.unique_id().expect("an id");
        rank.store.set(id, made.0).expect("told");
        made
    } else {
        UniqueId(rank.store.get(id).expect("told").try_into().expect("128 bytes"))
    };
    transport.init(DEVICE, rank.rank as i32, rank.size as i32, &id, &config)
}

#[test]
fn ranks_that_call_different_things_are_told_both() {
    use phalanx_nccl::api::{DataType, RedOp, Route, Transfer};
    for seed in seeds(4) {
        let words = told(seed, 2, |rank, transport| {
            let (status, comm) = joined(rank, transport, "id");
            assert_eq!(status, Status::SUCCESS);
            let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
            let memory = upload(rank, &[1; 48]);
            let what = Transfer::within(memory.span(), 12, DataType::F32);
            let on = Route { comm, stream };
            let status = match rank.rank {
                0 => transport.all_reduce(what, RedOp::SUM, on),
                _ => transport.broadcast(what, 1, on),
            };
            assert_eq!(status, Status::INVALID_USAGE);
            let words = transport.last_error(Some(comm));
            rank.cuda.synchronize_stream(stream).expect("done");
            assert_eq!((transport.abort(comm), transport.kept()), (Status::SUCCESS, 0));
            words
        });
        let (sum, broadcast) = (
            "ncclAllReduce of 12 elements of type 7, Sum, from 0",
            "ncclBroadcast from 1 of 12 elements of type 7, from 0",
        );
        assert_eq!(words[0], format!("this rank calls {sum}, where rank 1 calls {broadcast}"));
        assert_eq!(words[1], format!("this rank calls {broadcast}, where rank 0 calls {sum}"));
    }
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let words = told(1, 1, |rank, transport| {
        use phalanx_nccl::api::{CommConfig, DataType, RedOp, Route, Transfer};
        let id = transport.unique_id().expect("an id");
        let config = CommConfig::default();
        let mut words = Vec::new();
        let refused = |id: &UniqueId, rank, size| {
            let refused = transport.init(DEVICE, rank, size, id, &config);
            assert_eq!(refused, (Status::INVALID_ARGUMENT, Comm::NONE));
            transport.last_error(None)
        };
        words.push(refused(&UniqueId([7; 128]), 0, 1));
        words.extend([(0, 9), (2, 2), (-1, 2)].map(|(rank, size)| refused(&id, rank, size)));
        let (_, comm) = joined(rank, transport, "id");
        let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
        let (memory, on) = (upload(rank, &[1; 12]), Route { comm, stream });
        let mut tell = |status: Status| {
            assert!(!status.is_success());
            words.push(transport.last_error(Some(comm)));
        };
        let what = |count, dtype| Transfer::within(memory.span(), count, dtype);
        tell(transport.all_reduce(what(4, DataType::F32), RedOp::SUM, on));
        tell(transport.all_reduce(what(3, DataType::F32), RedOp(9), on));
        tell(transport.broadcast(what(3, DataType::F32), 1, on));
        tell(transport.all_gather(what(1, DataType(77)), on));
        tell(
            transport
                .create_pre_mul_sum(phalanx_nccl::api::Scalar::Host([0; 8]), DataType::I32, comm)
                .expect_err("refused"),
        );
        tell(transport.send(what(3, DataType::F32), 0, on));
        assert_eq!(transport.abort(comm), Status::SUCCESS);
        assert_eq!(transport.abort(comm), Status::INVALID_ARGUMENT);
        words.join("\n")
    });
    let expected = "\
the id is none of ranks of one host
rank 0 of 9: there are 1 to 8 ranks
rank 2 of 2: there are 1 to 8 ranks
rank -1 of 2: there are 1 to 8 ranks
what is sent has 12 bytes, and must have 16
reduction 9 is none of this communicator's for this type
rank 1 is none of 1
1 of type 77
a factor needs floats
what a rank sends to itself it must receive from itself, in the same group of calls";
    assert_eq!(words[0], expected);
}

#[test]
fn ranks_with_pieces_of_other_lengths_make_no_communicator() {
    let outcome = Simulation::new(2, 3).run(|rank| {
        let transport = transport(&rank, 1 << (10 + rank.rank));
        let (status, comm) = joined(&rank, &transport, "id");
        // It is gone by itself.
        assert_eq!(comm, Comm::NONE);
        (status, transport.last_error(None), transport.kept())
    });
    let words = |other, theirs, own| {
        let words = format!("rank {other} has pieces of {theirs} bytes, and this rank of {own}");
        Some((Status::INVALID_ARGUMENT, words, 0))
    };
    assert_eq!(outcome.results, [words(1, 2048, 1024), words(0, 1024, 2048)]);
    clean(&outcome, 3);
}

/// A rank that is gone in the middle: the others are told who, in time, and those who are left make a communicator.
#[test]
fn a_rank_that_vanishes_is_named_and_the_others_go_on() {
    for seed in seeds(4) {
        let outcome =
            Simulation::new(3, seed).fault(2, Fault::Vanishes { calls: 120 + 7 * (seed % 40) as usize }).run(|rank| {
                let transport = transport(&rank, 1 << 10);
                let began = rank.process.now();
                let old = group(&rank, &transport).expect("a group");
                let error = (0..500).find_map(|_| old.group().all_reduce(&mut [1.0_f32; 700], ReduceOp::Sum).err());
                let took = rank.process.now() - began;
                let layout = Layout::one_host(rank.rank, 2).expect("a layout");
                let options = GroupOptions::default().timeout(Duration::from_secs(2));
                let store = rank.store.scope("next");
                let next = DeviceGroup::new(stack(&rank, &transport), layout, store, NcclOptions::default(), options);
                let mut data = [rank.rank as i32 + 1; 3];
                let next = next.and_then(|next| next.group().all_reduce(&mut data, ReduceOp::Sum));
                (error, took, next.map(|()| data), old.abandoned())
            });
        for (rank, ended) in outcome.results.iter().enumerate().take(2) {
            let (error, took, next, abandoned) = ended.as_ref().unwrap_or_else(|| panic!("seed {seed}: rank {rank}"));
            let error: &Error = error.as_ref().unwrap_or_else(|| panic!("seed {seed}: rank {rank} went on"));
            assert!(error.to_string().contains("rank 2"), "seed {seed}: {error}");
            assert!(*took < Duration::from_secs(20), "seed {seed}: {took:?}");
            assert_eq!((next.as_ref().ok(), *abandoned), (Some(&[3; 3]), 0), "seed {seed}: {next:?}");
        }
        let stray: Vec<_> =
            outcome.findings.iter().filter(|finding| !matches!(finding, Finding::Stuck { .. })).collect();
        assert!(stray.is_empty(), "seed {seed}: {stray:?}");
    }
}

#[test]
fn an_abort_of_one_rank_is_an_error_of_all() {
    for seed in seeds(6) {
        let outcome = Simulation::new(3, seed).run(|rank| {
            let transport = transport(&rank, 1 << 10);
            let group = group(&rank, &transport).expect("a group");
            group.group().barrier().expect("all came");
            if rank.rank == 1 {
                group.group().abort("the test asks for it");
            }
            let error = group.group().all_reduce(&mut [1_u8; 5000], ReduceOp::Max).expect_err("an abort");
            (error.kind(), transport.kept())
        });
        assert_eq!(outcome.results, vec![Some((ErrorKind::Aborted, 0)); 3], "seed {seed}");
        clean(&outcome, seed);
    }
}
