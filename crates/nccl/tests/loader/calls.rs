//! Every call with what the library gets of it, and what it never gets: handles that are gone, memory that is too short.

use phalanx_nccl::api::{
    Comm, CommConfig, Cuda, DataType, Device, MemoryStat, Nccl, RedOp, Span, Status, Transfer, UniqueId, Version,
};
use phalanx_nccl::library::{NcclLibrary, Search};

use crate::Pair;
use crate::stub::Stub;

const NEW: u32 = 23_007;

#[test]
fn an_id_crosses_whole_and_by_value() {
    let pair = Pair::new(NEW);
    let id = pair.id();
    let whole: Vec<u8> = (0..128).map(|index| (1 + 7 * index) as u8).collect();
    assert_eq!(id.0[..], whole);
    let config = CommConfig::default();
    assert_eq!(pair.nccl.init(Device(0), 1, 2, &id, &config).0, Status::SUCCESS);
    for wrong in [0, 64, 127] {
        let mut other = id;
        other.0[wrong] ^= 1;
        let (status, comm) = pair.nccl.init(Device(0), 1, 2, &other, &config);
        assert_eq!((status, comm), (Status::INVALID_ARGUMENT, Comm::NONE));
        assert_eq!(pair.nccl.last_error(None), "the stub's ncclCommInitRankConfig failed by order");
    }
    assert_eq!(pair.nccl.init_scalable(Device(0), 0, 4, &[id, id], &config).0, Status::SUCCESS);
    assert_eq!(
        pair.nccl.init_scalable(Device(0), 0, 4, &[id, UniqueId([0; 128])], &config).0,
        Status::INVALID_ARGUMENT
    );
}

#[test]
fn a_communicator_tells_what_it_is() {
    let pair = Pair::new(NEW);
    let comm = pair.comm();
    let nccl = &pair.nccl;
    assert_eq!((nccl.rank(comm), nccl.count(comm), nccl.device(comm)), (Ok(1), Ok(4), Ok(Device(0))));
    assert_eq!(nccl.async_error(comm), Ok(Status::SUCCESS));
    assert_eq!(nccl.version(), Ok(Version::new(2, 30, 7)));
    assert_eq!(nccl.error_text(Status::SUCCESS), "no error (0)");
    assert_eq!(nccl.error_text(Status::ABSENT), "NCCL 2.30.7 has no such function");
}

#[test]
fn every_collective_gets_its_arguments() {
    let pair = Pair::new(NEW);
    let comm = pair.comm();
    let (a, b) = (memory(&pair, 64), memory(&pair, 64));
    let (nccl, on) = (&pair.nccl, pair.route(comm));
    let sees = |status: Status, numbers: (&str, usize, i32, i32, i32)| {
        assert_eq!(status, Status::SUCCESS, "{}", numbers.0);
        let call = pair.stub.last_call();
        assert_eq!(call.numbers(), numbers);
        assert!(!call.raw.comm.is_null() && !call.raw.stream.is_null());
        let (send, recv) = (call.raw.send as u64, call.raw.recv as u64);
        assert!((send == a.address() || send == 0) && (recv == b.address() || recv == 0), "{}", numbers.0);
    };
    let min = RedOp::MIN;
    sees(nccl.all_reduce(both(a, b, 8), min, on), ("ncclAllReduce", 8, 6, 3, -1));
    sees(nccl.broadcast(both(a, b, 8), 2, on), ("ncclBroadcast", 8, 6, -1, 2));
    sees(nccl.reduce(both(a, b, 8), min, 2, on), ("ncclReduce", 8, 6, 3, 2));
    sees(nccl.all_gather(both(a, b, 8), on), ("ncclAllGather", 8, 6, -1, -1));
    sees(nccl.reduce_scatter(both(a, b, 8), min, on), ("ncclReduceScatter", 8, 6, 3, -1));
    sees(nccl.send(both(a, a, 8), 3, on), ("ncclSend", 8, 6, -1, 3));
    sees(nccl.recv(both(b, b, 8), 3, on), ("ncclRecv", 8, 6, -1, 3));
    sees(nccl.all_to_all(both(a, b, 8), on), ("ncclAlltoAll", 8, 6, -1, -1));
    sees(nccl.gather(both(a, b, 8), 1, on), ("ncclGather", 8, 6, -1, 1));
    sees(nccl.scatter(both(a, b, 8), 1, on), ("ncclScatter", 8, 6, -1, 1));
}

#[test]
fn memory_that_is_too_short_never_reaches_the_library() {
    let pair = Pair::new(NEW);
    let comm = pair.comm();
    let (short, long) = (memory(&pair, 63), memory(&pair, 64));
    let (nccl, on, sum) = (&pair.nccl, pair.route(comm), RedOp::SUM);
    let refused = |status: Status, words: &str| {
        assert_eq!(status, Status::INVALID_ARGUMENT);
        assert_eq!(nccl.last_error(Some(comm)), words);
        assert_eq!(pair.stub.last_call().name, "");
    };
    let words = "64 bytes are needed where 63 are";
    refused(nccl.all_reduce(both(short, long, 32), sum, on), words);
    refused(nccl.all_reduce(both(long, short, 32), sum, on), words);
    refused(nccl.all_gather(both(long, short, 8), on), words);
    refused(nccl.reduce_scatter(both(short, long, 8), sum, on), words);
    refused(nccl.all_to_all(both(long, short, 8), on), words);
    refused(nccl.gather(both(long, short, 8), 1, on), words);
    refused(nccl.scatter(both(short, long, 8), 1, on), words);
    refused(nccl.broadcast(both(short, long, 32), 1, on), words);
    refused(nccl.reduce(both(long, short, 32), sum, 1, on), words);
    refused(nccl.send(both(short, short, 32), 0, on), words);
    refused(nccl.recv(both(short, short, 32), 0, on), words);
    let huge = format!("{} bytes are needed where 64 are", usize::MAX);
    refused(nccl.send(both(long, long, usize::MAX), 0, on), &huge);
    refused(nccl.send(Transfer::within(long, 1, DataType(77)), 0, on), "the size of elements of type 77 is not known");
    // Where this rank neither gives nor takes, nothing is needed.
    let none = Span::EMPTY;
    assert_eq!(nccl.broadcast(both(none, long, 32), 2, on), Status::SUCCESS);
    assert_eq!(nccl.reduce(both(long, none, 32), sum, 2, on), Status::SUCCESS);
    assert_eq!(nccl.gather(both(long, none, 8), 2, on), Status::SUCCESS);
    assert_eq!(nccl.scatter(both(none, long, 8), 2, on), Status::SUCCESS);
}

#[test]
fn a_communicator_that_is_gone_is_never_followed() {
    let pair = Pair::new(NEW);
    let nccl = &pair.nccl;
    let (first, second, third) = (pair.comm(), pair.comm(), pair.comm());
    assert_eq!(nccl.finalize(first), Status::SUCCESS);
    assert_eq!((nccl.destroy(first), nccl.abort(second)), (Status::SUCCESS, Status::SUCCESS));
    assert_eq!(pair.stub.ask("stub_comms"), 1);
    let span = memory(&pair, 8);
    for gone in [first, second, Comm::NONE] {
        let statuses = [
            nccl.destroy(gone),
            nccl.abort(gone),
            nccl.finalize(gone),
            nccl.revoke(gone),
            nccl.async_error(gone).expect_err("gone"),
            nccl.count(gone).expect_err("gone"),
            nccl.all_reduce(Transfer::within(span, 1, DataType::U8), RedOp::SUM, pair.route(gone)),
            nccl.split(gone, Some(0), 0, &CommConfig::default()).0,
            nccl.register(gone, span).expect_err("gone"),
        ];
        assert_eq!(statuses, [Status::INVALID_ARGUMENT; 9]);
        assert_eq!(nccl.last_error(Some(gone)), "there is no such communicator, or no longer");
    }
    assert_eq!(nccl.async_error(third), Ok(Status::SUCCESS));
}

#[test]
fn a_stream_that_is_gone_is_never_followed() {
    let pair = Pair::new(NEW);
    let (comm, span) = (pair.comm(), memory(&pair, 8));
    pair.cuda.destroy_stream(pair.stream).expect("a stream");
    let status = pair.nccl.send(Transfer::within(span, 1, DataType::U8), 0, pair.route(comm));
    assert_eq!(status, Status::INVALID_ARGUMENT);
    assert_eq!(pair.nccl.last_error(None), "there is no such stream, or no longer");
}

#[test]
fn without_a_driver_there_are_ids_but_no_streams() {
    let (pair, stub) = (Pair::new(NEW), Stub::nccl(NEW));
    let nccl = NcclLibrary::open(&Search::new().path(&stub.path), None).expect("the stub");
    let (status, comm) = nccl.init(Device(0), 0, 1, &nccl.unique_id().expect("an id"), &CommConfig::default());
    assert_eq!(status, Status::SUCCESS);
    let span = memory(&pair, 8);
    assert_eq!(nccl.send(Transfer::within(span, 1, DataType::U8), 0, pair.route(comm)), Status::INVALID_ARGUMENT);
    assert_eq!(nccl.last_error(None), "there is no CUDA driver, so there are no streams");
}

#[test]
fn a_device_that_is_not_there_is_told_before_the_library_is_asked() {
    let pair = Pair::new(NEW);
    let (status, comm) = pair.nccl.init(Device(9), 0, 1, &pair.id(), &CommConfig::default());
    assert_eq!((status, comm), (Status::UNHANDLED_CUDA, Comm::NONE));
    let words = "cuda:9 cannot be made current: CUDA_ERROR_INVALID_DEVICE (101)";
    assert_eq!(pair.nccl.last_error(None), words);
}

#[test]
fn groups_and_estimates() {
    let pair = Pair::new(NEW);
    assert_eq!((pair.nccl.group_start(), pair.stub.ask("stub_grouped")), (Status::SUCCESS, 1));
    assert_eq!(pair.nccl.group_simulate_end(), Ok(12.5));
    assert_eq!((pair.nccl.group_start(), pair.nccl.group_end()), (Status::SUCCESS, Status::SUCCESS));
    assert_eq!(pair.stub.ask("stub_grouped"), 0);
    pair.stub.tell("stub_answer", 7);
    assert!(pair.nccl.group_end().is_in_progress());
}

#[test]
fn memory_is_registered_once_and_taken_back_once() {
    let pair = Pair::new(NEW);
    let (nccl, comm, other) = (&pair.nccl, pair.comm(), pair.comm());
    let span = nccl.allocate(Device(0), 4096).expect("memory");
    let registration = nccl.register(comm, span).expect("a registration");
    assert_eq!(pair.stub.last_call().raw.count, 4096);
    assert_eq!(nccl.deregister(other, registration), Status::INVALID_ARGUMENT);
    assert_eq!(nccl.deregister(comm, registration), Status::SUCCESS);
    assert_eq!(nccl.deregister(comm, registration), Status::INVALID_ARGUMENT);
    let (status, window) = nccl.register_window(comm, span, true);
    assert_eq!((status, pair.stub.last_call().raw.op), (Status::SUCCESS, 1));
    let window = window.expect("a window");
    assert_eq!(nccl.deregister_window(comm, window), Status::SUCCESS);
    assert_eq!(nccl.deregister_window(comm, window), Status::INVALID_ARGUMENT);
    let part = span.part(0, 8).expect("a part");
    assert_eq!((nccl.free(part), nccl.free(span)), (Status::INVALID_ARGUMENT, Status::SUCCESS));
    assert_eq!(nccl.free(span), Status::INVALID_ARGUMENT);
    assert_eq!(nccl.allocate(Device(0), 1 << 20), Err(Status::UNHANDLED_CUDA));
}

#[test]
fn a_window_that_the_library_did_not_open_is_known_for_none_and_never_taken_back() {
    let pair = Pair::new(NEW);
    let (nccl, comm) = (&pair.nccl, pair.comm());
    let span = nccl.allocate(Device(0), 4096).expect("memory");
    let open = nccl.register_window(comm, span, false).1.expect("a window");
    pair.stub.tell("stub_no_windows", 1);
    let (status, none) = nccl.register_window(comm, span, false);
    let none = none.expect("a number for it");
    assert_eq!((status, nccl.is_open(open), nccl.is_open(none)), (Status::SUCCESS, true, false));
    // The stub knows no other window than the one that it gave.
    let back = [none, none, open].map(|window| nccl.deregister_window(comm, window));
    assert_eq!(back, [Status::SUCCESS, Status::INVALID_ARGUMENT, Status::SUCCESS]);
}

#[test]
fn memory_of_the_librarys_own_is_suspended_and_counted() {
    let pair = Pair::new(NEW);
    let comm = pair.comm();
    assert_eq!((pair.nccl.suspend(comm), pair.stub.last_call().raw.op), (Status::SUCCESS, 1));
    assert_eq!(pair.nccl.resume(comm), Status::SUCCESS);
    assert_eq!(pair.nccl.memory_stat(comm, MemoryStat(3)), Ok((1 << 40) + 3));
    assert_eq!((pair.nccl.revoke(comm), pair.stub.last_call().raw.op), (Status::SUCCESS, 0));
}

/// Elements of two bytes.
fn both(send: Span, recv: Span, count: usize) -> Transfer {
    Transfer { send, recv, count, dtype: DataType::F16 }
}

fn memory(pair: &Pair, byte_len: usize) -> Span {
    pair.cuda.allocate(Device(0), byte_len).expect("memory")
}
