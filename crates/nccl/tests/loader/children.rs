//! Communicators that come from others, and that the library makes in its own time: it writes them down when it is done.

use std::time::{Duration, Instant};

use phalanx_nccl::api::{Comm, CommConfig, Cuda, DataType, Device, Growth, Nccl, RedOp, Status, Transfer};

use crate::Pair;

const NEW: u32 = 23_007;

#[test]
fn a_split_may_be_asked_for_before_it_is_made() {
    let pair = Pair::new(NEW);
    let (nccl, parent) = (&pair.nccl, pair.comm());
    pair.stub.tell("stub_split_polls", 3);
    let (status, child) = nccl.split(parent, Some(2), 5, &CommConfig::default());
    assert_eq!(status, Status::SUCCESS);
    assert_eq!(nccl.count(child), Err(Status::INVALID_ARGUMENT));
    assert_eq!(nccl.last_error(Some(child)), "the communicator is still being made by the one it comes from");
    assert_eq!(nccl.async_error(child), Ok(Status::IN_PROGRESS));
    assert_eq!(nccl.async_error(child), Ok(Status::IN_PROGRESS));
    assert_eq!(nccl.async_error(child), Ok(Status::SUCCESS));
    assert_eq!((nccl.count(child), nccl.rank(child)), (Ok(12), Ok(5)));
    // Neither depends on the other any more.
    assert_eq!((nccl.abort(parent), nccl.async_error(child)), (Status::SUCCESS, Ok(Status::SUCCESS)));
}

#[test]
fn the_parent_may_be_asked_as_well() {
    let pair = Pair::new(NEW);
    let parent = pair.comm();
    pair.stub.tell("stub_split_polls", 2);
    let (_, child) = pair.nccl.split(parent, Some(0), 0, &CommConfig::default());
    assert_eq!(pair.nccl.async_error(parent), Ok(Status::IN_PROGRESS));
    assert_eq!(pair.nccl.async_error(parent), Ok(Status::SUCCESS));
    assert_eq!(pair.nccl.count(child), Ok(10));
}

#[test]
fn without_a_colour_there_is_none() {
    let pair = Pair::new(NEW);
    let parent = pair.comm();
    let config = CommConfig::default();
    assert_eq!(pair.nccl.split(parent, None, 0, &config), (Status::SUCCESS, Comm::NONE));
    pair.stub.tell("stub_split_polls", 2);
    assert_eq!(pair.nccl.split(parent, None, 0, &config), (Status::SUCCESS, Comm::NONE));
    assert_eq!(pair.nccl.async_error(parent), Ok(Status::IN_PROGRESS));
    assert_eq!(pair.nccl.async_error(parent), Ok(Status::SUCCESS));
    assert_eq!(pair.nccl.split(parent, Some(-3), 0, &config).0, Status::INVALID_ARGUMENT);
}

#[test]
fn a_child_that_is_ended_before_it_is_made_is_gone() {
    let pair = Pair::new(NEW);
    let parent = pair.comm();
    pair.stub.tell("stub_split_polls", 9);
    let (_, child) = pair.nccl.split(parent, Some(0), 0, &CommConfig::default());
    assert_eq!(pair.nccl.abort(child), Status::SUCCESS);
    assert_eq!(pair.nccl.async_error(child), Err(Status::INVALID_ARGUMENT));
    assert_eq!(pair.nccl.abort(parent), Status::SUCCESS);
}

#[test]
fn a_child_is_lost_with_a_parent_that_ends_before_it_is_made() {
    let pair = Pair::new(NEW);
    let parent = pair.comm();
    pair.stub.tell("stub_split_polls", 9);
    let (_, child) = pair.nccl.split(parent, Some(0), 0, &CommConfig::default());
    assert_eq!(pair.nccl.abort(parent), Status::SUCCESS);
    assert_eq!(pair.nccl.async_error(child), Err(Status::INVALID_ARGUMENT));
}

#[test]
fn a_child_that_is_made_though_it_was_ended_ends_with_its_parent() {
    let pair = Pair::new(NEW);
    let parent = pair.comm();
    pair.stub.tell("stub_split_polls", 2);
    let (_, child) = pair.nccl.split(parent, Some(0), 0, &CommConfig::default());
    assert_eq!(pair.nccl.abort(child), Status::SUCCESS);
    assert_eq!([(); 2].map(|()| pair.nccl.async_error(parent)), [Ok(Status::IN_PROGRESS), Ok(Status::SUCCESS)]);
    assert_eq!((pair.stub.ask("stub_comms"), pair.nccl.abort(parent)), (2, Status::SUCCESS));
    assert_eq!(pair.stub.ask("stub_comms"), 0);
}

#[test]
fn what_is_begun_is_a_communicator() {
    let pair = Pair::new(NEW);
    let id = pair.id();
    pair.stub.tell("stub_answer", 7);
    let (status, comm) = pair.nccl.init(Device(0), 0, 1, &id, &CommConfig::default());
    assert!(status.is_in_progress() && comm != Comm::NONE);
    assert_eq!(pair.nccl.abort(comm), Status::SUCCESS);
}

#[test]
fn communicators_shrink_and_grow() {
    let pair = Pair::new(NEW);
    let (nccl, parent, config) = (&pair.nccl, pair.comm(), CommConfig::default());
    let (status, smaller) = nccl.shrink(parent, &[3, 2], &config, true);
    let call = pair.stub.last_call();
    assert_eq!((status, call.raw.count, call.raw.root, call.raw.op), (Status::SUCCESS, 2, 3, 1));
    assert_eq!(nccl.count(smaller), Ok(1));
    let id = nccl.unique_id_of(parent).expect("an id");
    let (status, grown) = nccl.grow(Growth::Member { comm: parent, id: Some(&id) }, 5, &config);
    assert_eq!((status, nccl.count(grown)), (Status::SUCCESS, Ok(5)));
    let (status, joined) = nccl.grow(Growth::Newcomer { device: Device(0), rank: 4, id: &id }, 5, &config);
    assert_eq!((status, nccl.rank(joined)), (Status::SUCCESS, Ok(4)));
    let elsewhere = Growth::Newcomer { device: Device(9), rank: 4, id: &id };
    assert_eq!(nccl.grow(elsewhere, 5, &config), (Status::UNHANDLED_CUDA, Comm::NONE));
    let words = "cuda:9 cannot be made current: CUDA_ERROR_INVALID_DEVICE (101)";
    assert_eq!(nccl.last_error(None), words);
}

#[test]
fn any_thread_may_ask_while_another_ends_it() {
    let pair = Pair::new(NEW);
    for _ in 0..50 {
        let comm = pair.comm();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| while pair.nccl.async_error(comm).is_ok() {});
            }
            scope.spawn(|| assert_eq!(pair.nccl.abort(comm), Status::SUCCESS));
        });
    }
    assert_eq!(pair.stub.ask("stub_comms"), 0);
}

#[test]
fn an_abort_waits_for_no_call_that_hangs() {
    let pair = Pair::new(NEW);
    let comm = pair.comm();
    let span = pair.cuda.allocate(Device(0), 4).expect("memory");
    let what = Transfer::within(span, 1, DataType::F32);
    pair.stub.tell("stub_hang", 1);
    std::thread::scope(|scope| {
        let call = || pair.nccl.all_reduce(what, RedOp::SUM, pair.route(comm));
        let hangs = scope.spawn(call);
        while pair.stub.ask("stub_hung") == 0 {
            std::thread::yield_now();
        }
        assert_eq!(pair.nccl.async_error(comm), Ok(Status::SUCCESS));
        assert_eq!(pair.nccl.abort(comm), Status::SUCCESS);
        assert_eq!(hangs.join().expect("the thread"), Status::REMOTE);
    });
    assert_eq!(pair.nccl.async_error(comm), Err(Status::INVALID_ARGUMENT));
}

/// Whoever asks how a child is asks its parent first, which is being aborted.
#[test]
fn nobody_waits_for_an_abort_that_hangs_to_ask() {
    let pair = Pair::new(NEW);
    let parent = pair.comm();
    pair.stub.tell("stub_split_polls", 9);
    let (_, child) = pair.nccl.split(parent, Some(0), 0, &CommConfig::default());
    pair.stub.tell("stub_hang_aborts", 1);
    std::thread::scope(|scope| {
        let aborts = scope.spawn(|| pair.nccl.abort(parent));
        while pair.stub.ask("stub_aborting") == 0 {
            std::thread::yield_now();
        }
        let asks = scope.spawn(|| pair.nccl.async_error(child));
        let bound = Instant::now() + Duration::from_secs(20);
        while !asks.is_finished() && Instant::now() < bound {
            std::thread::yield_now();
        }
        let is_answered = asks.is_finished();
        pair.stub.tell("stub_hang_aborts", 0);
        assert_eq!((is_answered, asks.join().expect("the thread")), (true, Err(Status::INVALID_ARGUMENT)));
        assert_eq!(aborts.join().expect("the thread"), Status::SUCCESS);
    });
}

/// That may take for ever, so it is for whoever has asked for it.
#[test]
fn what_was_begun_and_failed_is_there_to_be_ended() {
    let pair = Pair::new(NEW);
    let (id, config) = (pair.id(), CommConfig::default());
    pair.stub.tell("stub_keep_begun", 1);
    pair.stub.tell("stub_answer", 2);
    let (status, begun) = pair.nccl.init(Device(0), 0, 1, &id, &config);
    assert!(status == Status::SYSTEM && begun != Comm::NONE);
    assert_eq!(pair.nccl.last_error(None), "the stub's ncclCommInitRankConfig failed by order");
    assert_eq!((pair.stub.ask("stub_comms"), pair.stub.ask("stub_aborting")), (1, 0));
    assert_eq!(pair.nccl.abort(begun), Status::SUCCESS);
    assert_eq!((pair.stub.ask("stub_comms"), pair.stub.ask("stub_aborting")), (0, 1));
}
