//! Process groups over the loader: ranks are threads, each with libraries of its own, over stubs that move data. What the group does is
//! the conformance suite's matter; here it is whether all of it crosses.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use phalanx_comm::store::LocalStore;
use phalanx_core::store::{Doubt, Home, Limits, Reply, Request, Store, StoreError};
use phalanx_core::{DType, ErrorKind, GroupOptions, Layout, Op, ReduceOp};
use phalanx_nccl::api::{Cuda, Device, Stream};
use phalanx_nccl::group::{DeviceBuffer, DeviceGroup, NcclOptions, PinnedBuffer, Stack};
use phalanx_nccl::library::{CudaDriver, Machine, NcclLibrary, Search};

use crate::stub::{Stub, all_is_given_back};

const DEVICE: Device = Device(0);

type Group = DeviceGroup<NcclLibrary, CudaDriver, Machine>;

struct Member {
    rank: usize,
    size: usize,
    group: Group,
    cuda: Arc<CudaDriver>,
    stream: Stream,
}

/// Runs `program` on each of so many ranks. A version without a function has the group make it of others.
fn run(version: u32, size: usize, program: impl Fn(&Member) + Sync) {
    run_on(DEVICE, version, size, program);
}

/// The same on a device, which alone gets a context.
fn run_on(device: Device, version: u32, size: usize, program: impl Fn(&Member) + Sync) {
    let (nccl, driver, store) = (Stub::nccl(version), Stub::cuda(), LocalStore::new(Limits::default()));
    nccl.tell("stub_meet", 1);
    look_for_contexts(&nccl, &driver);
    let member = |rank| {
        let cuda = Arc::new(CudaDriver::open(&Search::new().path(&driver.path)).expect("the driver's stub"));
        let nccl = NcclLibrary::open(&Search::new().path(&nccl.path), Some(Arc::clone(&cuda))).expect("NCCL's stub");
        let stack = Stack::new(Arc::new(nccl), Arc::clone(&cuda), Arc::new(Machine::new()), device);
        let layout = Layout::one_host(rank, size).expect("a layout");
        let options = GroupOptions::default().timeout(Duration::from_secs(30));
        let store = Store::new(store.clone());
        let group = DeviceGroup::new(stack, layout, store, NcclOptions::default(), options).expect("a group");
        let stream = cuda.create_stream(device, false).expect("a stream");
        Member { rank, size, group, cuda, stream }
    };
    thread::scope(|scope| {
        for rank in 0..size {
            let (member, program) = (&member, &program);
            scope.spawn(move || program(&member(rank)));
        }
    });
    // The threads of groups give all memory, streams, events and communicators back, in their own time.
    all_is_given_back(|| driver.ask("stub_alive") + nccl.ask("stub_comms"));
    assert_eq!(driver.ask("stub_retained"), 1 << device.0);
}

/// Has the library refuse threads on which no context is current: it would make one on the first device.
fn look_for_contexts(nccl: &Stub, driver: &Stub) {
    type Ask = unsafe extern "C" fn() -> c_int;
    // SAFETY: the type of this function.
    let tell: unsafe extern "C" fn(Ask) = unsafe { nccl.function("stub_contexts") };
    // SAFETY: the type of this function.
    let depth: Ask = unsafe { driver.function("stub_depth") };
    // SAFETY: a function of a library that stays.
    unsafe { tell(depth) };
}

#[test]
fn a_group_needs_no_context_but_its_devices() {
    run_on(Device(1), 23_007, 2, |member| {
        let mut data = [1.0_f32];
        member.group.group().all_reduce(&mut data, ReduceOp::Sum).expect("summed");
        assert_eq!(data, [2.0]);
        let memory = member.group.allocate(64).expect("memory");
        drop(
            [member.group.register(&memory), member.group.register_window(&memory, true)]
                .map(|known| known.expect("known")),
        );
        member.group.group().barrier().expect("the group goes on");
    });
}

/// What each rank has comes to all, and from each to each.
pub(crate) fn parts_cross(group: &phalanx_core::Group, rank: usize, size: usize) {
    let mut all = vec![0_u16; 2 * size];
    group.all_gather(&[rank as u16; 2], &mut all).expect("gathered");
    assert_eq!(all, (0..size).flat_map(|rank| [rank as u16; 2]).collect::<Vec<_>>());
    let given: Vec<i64> = (0..size).map(|to| (10 * rank + to) as i64).collect();
    let mut taken = vec![0; size];
    group.all_to_all(&given, &mut taken).expect("exchanged");
    assert_eq!(taken, (0..size).map(|from| (10 * from + rank) as i64).collect::<Vec<_>>());
}

#[test]
fn collectives_and_messages_cross() {
    for (version, size) in [(21_801, 1), (21_801, 3), (22_809, 2), (23_007, 4)] {
        run(version, size, |member| {
            let (group, rank, size) = (member.group.group(), member.rank, member.size);
            let mut data = vec![rank as f32 + 1.0; 5];
            group.all_reduce(&mut data, ReduceOp::Sum).expect("summed");
            assert_eq!(data, vec![(size * (size + 1) / 2) as f32; 5]);
            parts_cross(group, rank, size);
            let mut part = [0_i32; 2];
            group.reduce_scatter(&vec![rank as i32; 2 * size], &mut part, ReduceOp::Max).expect("scattered");
            assert_eq!(part, [size as i32 - 1; 2]);
            let mut own = [rank as f64; 3];
            group.broadcast(&mut own, size - 1).expect("given");
            assert_eq!(own, [size as f64 - 1.0; 3]);
            group.barrier().expect("all came");
            if size > 1 {
                let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
                let sent = group.send_async(vec![rank as u32; 4], next, 0).expect("submitted");
                let mut got = [0_u32; 4];
                group.recv(&mut got, before, 0).expect("received");
                sent.wait().expect("sent");
                assert_eq!(got, [before as u32; 4]);
            }
        });
    }
}

#[test]
fn memory_of_the_device_is_used_where_it_is() {
    run(22_809, 2, |member| {
        let host = PinnedBuffer::new(&member.cuda, 16).expect("memory");
        let data = DeviceBuffer::new(&member.cuda, DEVICE, 16).expect("memory");
        host.write(&[member.rank as u8 + 1; 16]).expect("written");
        member.cuda.copy(data.span(), host.span(), member.stream).expect("copied");
        let op = Op::AllReduce { count: 16, reduce: ReduceOp::Sum };
        let work = member.group.submit(op, DType::U8, None, (None, &data), member.stream).expect("submitted");
        work.fence(member.stream).expect("on its stream");
        member.cuda.copy(host.span(), data.span(), member.stream).expect("copied");
        work.wait().expect("done");
        let mut bytes = [0; 16];
        host.read(&mut bytes).expect("read");
        assert_eq!(bytes, [3; 16]);
    });
}

#[test]
fn a_call_that_hangs_in_the_library_is_aborted_from_beside_it() {
    let is_over = Barrier::new(2);
    run(23_007, 2, |member| {
        if member.rank == 0 {
            let error =
                member.group.group().within(Duration::from_millis(200)).all_reduce(&mut [1.0_f32], ReduceOp::Sum);
            let kind = error.expect_err("nobody comes").kind();
            assert!(matches!(kind, ErrorKind::Timeout | ErrorKind::Aborted | ErrorKind::Device), "{kind:?}");
            assert_eq!(member.group.abandoned(), 0);
        }
        is_over.wait();
    });
}

/// The operation fails of what the library has said, and what that had begun ends beside it.
#[test]
fn a_communicator_that_was_begun_and_failed_is_ended() {
    let (stub, driver) = (Stub::nccl(22_809), Stub::cuda());
    let cuda = Arc::new(CudaDriver::open(&Search::new().path(&driver.path)).expect("the driver's stub"));
    let nccl = NcclLibrary::open(&Search::new().path(&stub.path), Some(Arc::clone(&cuda))).expect("NCCL's stub");
    let stack = Stack::new(Arc::new(nccl), cuda, Arc::new(Machine::new()), DEVICE);
    let store = Store::new(LocalStore::new(Limits::default()));
    // An id of the stub's, as if rank 0 had brought it.
    let id: Vec<u8> = (0..128).map(|index| (1 + 7 * index) as u8).collect();
    store.set("0", id).expect("stored");
    let layout = Layout::one_host(1, 2).expect("a layout");
    let group = DeviceGroup::new(stack, layout, store, NcclOptions::default(), GroupOptions::default());
    let group = group.expect("a group");
    stub.tell("stub_keep_begun", 1);
    stub.tell("stub_answer", 2);
    let error = group.group().all_reduce(&mut [1.0_f32], ReduceOp::Sum).expect_err("it is not made");
    assert!(error.to_string().contains("the stub's ncclCommInitRankConfig failed by order"), "{error}");
    all_is_given_back(|| stub.ask("stub_comms"));
    assert_eq!(stub.ask("stub_aborting"), 1);
}

/// A store that answers until it is broken.
struct Fragile {
    home: LocalStore,
    is_broken: Arc<AtomicBool>,
}

impl Home for Fragile {
    fn ask(&self, request: Request, timeout: Duration) -> Result<Reply, StoreError> {
        if self.is_broken.load(Ordering::Acquire) {
            return Err(StoreError::Lost { verb: request.verb(), detail: "by order".into(), doubt: Doubt::None });
        }
        self.home.ask(request, timeout)
    }

    fn describe(&self) -> String {
        "a store that breaks".to_owned()
    }
}

#[test]
fn a_store_that_is_gone_keeps_no_thread_of_a_failed_group() {
    let (nccl, driver, is_broken) = (Stub::nccl(22_809), Stub::cuda(), Arc::new(AtomicBool::new(false)));
    let cuda = Arc::new(CudaDriver::open(&Search::new().path(&driver.path)).expect("the driver's stub"));
    let nccl = NcclLibrary::open(&Search::new().path(&nccl.path), Some(Arc::clone(&cuda))).expect("NCCL's stub");
    let stack = Stack::new(Arc::new(nccl), cuda, Arc::new(Machine::new()), DEVICE);
    let layout = Layout::one_host(0, 2).expect("a layout");
    let home = Fragile { home: LocalStore::new(Limits::default()), is_broken: Arc::clone(&is_broken) };
    let options = NcclOptions::default().heartbeat(Duration::from_millis(5)).abort_timeout(Duration::from_millis(50));
    let group = DeviceGroup::new(stack, layout, Store::new(home), options, GroupOptions::default()).expect("a group");
    is_broken.store(true, Ordering::Release);
    group.group().abort("enough");
    drop(group);
    // The last that has the store is the watch.
    let bound = Instant::now() + Duration::from_secs(60);
    while Arc::strong_count(&is_broken) > 1 {
        assert!(Instant::now() < bound, "the watch does not end");
        thread::yield_now();
    }
}
