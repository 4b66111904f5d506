//! Versions: who is refused, what older libraries lack, and how that is told. Numbers of newer ones are kept as they are.

use phalanx_core::{Error, ErrorKind};
use phalanx_nccl::api::{
    CommConfig, Device, Growth, MemoryStat, Nccl, Scalar, Span, Status, Transfer, UniqueId, Version,
};
use phalanx_nccl::api::{Cuda, DataType, RedOp};
use phalanx_nccl::library::{NcclLibrary, Nvrtc, Search};

use crate::Pair;
use crate::stub::{self, Stub};

#[test]
fn a_library_older_than_2_18_is_refused_by_name() {
    let stub = Stub::nccl(21_403);
    let error = NcclLibrary::open(&Search::new().path(&stub.path), None).expect_err("too old");
    assert_eq!(error.kind(), ErrorKind::Setup);
    let path = stub.path.display();
    let why = format!("NCCL: cannot be used; tried {path}: is NCCL 2.14.3, and 2.18.0 is the oldest that will do");
    assert_eq!(error.to_string(), why);
}

#[test]
fn the_oldest_numbers_are_read_too() {
    let stub = Stub::nccl(2_708);
    let error = NcclLibrary::open(&Search::new().path(&stub.path), None).expect_err("too old").to_string();
    assert!(error.contains("is NCCL 2.7.8, and"), "{error}");
}

#[test]
fn a_library_that_is_something_else_is_refused() {
    let stub = Stub::cuda();
    let error = NcclLibrary::open(&Search::new().path(&stub.path), None).expect_err("no NCCL").to_string();
    assert!(error.ends_with("is no NCCL, as it does not export ncclGetVersion"), "{error}");
    let error = Nvrtc::open(&Search::new().path(&stub.path)).expect_err("no NVRTC").to_string();
    assert!(error.ends_with("is no NVRTC, as it does not export nvrtcVersion"), "{error}");
}

#[test]
fn a_file_that_is_no_library_is_refused_in_the_loaders_words() {
    let directory = stub::directory();
    let path = directory.join("libnccl.so.2");
    std::fs::write(&path, "no library").expect("a file");
    let error = NcclLibrary::open(&Search::new().path(&directory), None).expect_err("no library").to_string();
    std::fs::remove_dir_all(&directory).expect("the directory");
    assert!(error.contains(&format!("tried {}: ", path.display())), "{error}");
    assert!(error.contains("libnccl.so: cannot open shared object file"), "{error}");
}

#[test]
fn a_library_of_2_18_lacks_what_came_later_and_says_so() {
    let pair = Pair::new(21_801);
    let missing: Vec<String> = pair.nccl.missing().iter().map(ToString::to_string).collect();
    assert_eq!(missing.len(), 18, "{missing:?}");
    assert_eq!(missing[0], "ncclCommInitRankScalable needs 2.23.0, this library is 2.18.1");
    let error = Error::from(pair.nccl.missing()[1]);
    assert_eq!(error.kind(), ErrorKind::Setup);
    assert_eq!(error.to_string(), "NCCL: ncclCommShrink needs 2.27.0, this library is 2.18.1");
    told_of_all(&pair, "needs ", ", this library is 2.18.1");
}

#[test]
fn a_library_whose_symbols_are_hidden_lacks_them_whatever_it_says_it_is() {
    let stub = Stub::build("nccl", "libnccl.so.2", &["VERSION=23007", "SYMBOLS=21801"]);
    let pair = Pair::of(stub);
    assert_eq!(pair.nccl.version(), Ok(Version::new(2, 30, 7)));
    told_of_all(&pair, "is there since ", ", but this library of 2.30.7 does not export it");
}

/// Calls all that 2.18 does not have, and is told of each in these words.
fn told_of_all(pair: &Pair, before: &str, after: &str) {
    let (nccl, comm, config) = (&pair.nccl, pair.comm(), CommConfig::default());
    let absent = |function: &str, since: &str, status: Status| {
        assert_eq!(status, Status::ABSENT, "{function}");
        assert_eq!(nccl.last_error(Some(comm)), format!("{function} {before}{since}{after}"));
    };
    let span = pair.cuda.allocate(Device(0), 64).expect("memory");
    let (what, on) = (Transfer::within(span, 1, DataType::U8), pair.route(comm));
    absent("ncclCommInitRankScalable", "2.23.0", nccl.init_scalable(Device(0), 0, 1, &[UniqueId([0; 128])], &config).0);
    absent("ncclCommShrink", "2.27.0", nccl.shrink(comm, &[3], &config, false).0);
    absent("ncclCommGrow", "2.29.2", nccl.grow(Growth::Member { comm, id: None }, 5, &config).0);
    absent("ncclCommGetUniqueId", "2.29.2", nccl.unique_id_of(comm).expect_err("absent"));
    absent("ncclCommRevoke", "2.28.7", nccl.revoke(comm));
    absent("ncclGroupSimulateEnd", "2.22.0", nccl.group_simulate_end().expect_err("absent"));
    absent("ncclAlltoAll", "2.28.3", nccl.all_to_all(what, on));
    absent("ncclGather", "2.28.3", nccl.gather(what, 0, on));
    absent("ncclScatter", "2.28.3", nccl.scatter(what, 0, on));
    absent("ncclMemAlloc", "2.19.0", nccl.allocate(Device(0), 8).expect_err("absent"));
    absent("ncclCommRegister", "2.19.0", nccl.register(comm, span).expect_err("absent"));
    absent("ncclCommWindowRegister", "2.27.0", nccl.register_window(comm, span, true).0);
    absent("ncclCommSuspend", "2.29.7", nccl.suspend(comm));
    absent("ncclCommResume", "2.29.7", nccl.resume(comm));
    absent("ncclCommMemStats", "2.29.7", nccl.memory_stat(comm, MemoryStat(0)).expect_err("absent"));
    assert_eq!(nccl.free(Span::EMPTY), Status::INVALID_ARGUMENT);
    // What 2.18 has still works.
    assert_eq!(nccl.all_reduce(what, RedOp::SUM, on), Status::SUCCESS);
    assert_eq!(nccl.abort(comm), Status::SUCCESS);
}

#[test]
fn results_that_are_not_known_are_kept_as_they_are() {
    let pair = Pair::new(22_809);
    let (comm, id) = (pair.comm(), pair.id());
    for code in [99, -5, i32::MAX] {
        pair.stub.tell("stub_answer", code);
        assert_eq!(pair.nccl.init(Device(0), 0, 1, &id, &CommConfig::default()).0, Status(code));
        assert_eq!(pair.nccl.error_text(Status(code)), format!("unknown result code ({code})"));
        pair.stub.tell("stub_state", code);
        assert_eq!(pair.nccl.async_error(comm), Ok(Status(code)));
    }
}

#[test]
fn eight_is_a_timeout_where_the_library_says_so_and_never_a_success() {
    for (version, text) in [(22_809, "unknown result code (8)"), (23_007, "timeout (8)")] {
        let pair = Pair::new(version);
        let comm = pair.comm();
        pair.stub.tell("stub_answer", 8);
        let status = pair.nccl.group_end();
        assert!(status == Status::TIMEOUT && !status.is_success() && !status.is_in_progress());
        assert_eq!(pair.nccl.error_text(status), text);
        assert_eq!(pair.nccl.last_error(Some(comm)), "the stub's ncclGroupEnd failed by order");
    }
}

#[test]
fn a_reduction_of_the_librarys_making_is_any_number() {
    let pair = Pair::new(22_809);
    let comm = pair.comm();
    let factor = 0.25_f64;
    let op = pair.nccl.create_pre_mul_sum(Scalar::Host(factor.to_ne_bytes()), DataType::F64, comm);
    assert_eq!(op, Ok(RedOp(0x1234_5678)));
    let call = pair.stub.last_call();
    assert_eq!((call.raw.count as u64, call.raw.dtype, call.raw.op), (factor.to_bits(), 8, 1));
    assert_eq!(pair.nccl.destroy_op(RedOp(0x1234_5678), comm), Status::SUCCESS);
    assert_eq!(pair.nccl.destroy_op(RedOp(7), comm), Status::INVALID_ARGUMENT);
    let span = pair.cuda.allocate(Device(0), 4).expect("memory");
    assert!(pair.nccl.create_pre_mul_sum(Scalar::Device(span), DataType::F32, comm).is_ok());
    let call = pair.stub.last_call();
    assert_eq!((call.raw.send as u64, call.raw.op), (span.address(), 0));
    assert!(pair.nccl.create_pre_mul_sum(Scalar::Device(span), DataType::F64, comm).is_err());
    assert_eq!(pair.nccl.last_error(None), "8 bytes are needed where 4 are");
}
