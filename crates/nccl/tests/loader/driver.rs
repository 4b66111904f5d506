//! The CUDA driver's and the run-time compiler's calls, over stubs whose devices are memory of the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use phalanx_core::{DType, ErrorKind};
use phalanx_nccl::api::{Argument, Cuda, CudaCode, Device, EventKind, Grid, KernelId, MemoryInfo, Shared, Span};
use phalanx_nccl::kernels::nan::Pattern;
use phalanx_nccl::kernels::{Carry, Plan, Stretch};
use phalanx_nccl::library::{CudaDriver, Nvrtc, Origin, Program, Search};

use crate::stub::Stub;

const FIRST: Device = Device(0);
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: i32 = 2;
/// `CUDA_ERROR_UNSUPPORTED_PTX_VERSION`.
const UNSUPPORTED_PTX_VERSION: i32 = 222;

fn open() -> (CudaDriver, Stub) {
    let stub = Stub::cuda();
    (CudaDriver::open(&Search::new().path(&stub.path)).expect("the stub"), stub)
}

#[test]
fn what_is_no_driver_or_has_no_card_is_told() {
    let cases = [
        (Stub::build("cuda", "libcuda.so.1", &["INIT=100"]), "cuInit answers CUDA_ERROR_NO_DEVICE (100): no CUDA-"),
        (Stub::build("cuda", "libcuda.so.1", &["WITHOUT_CAPTURE"]), "does not export cuStreamIsCapturing"),
        (Stub::nccl(22_809), "is no CUDA driver, as it does not export cuInit"),
    ];
    for (stub, why) in cases {
        let error = CudaDriver::open(&Search::new().path(&stub.path)).expect_err("no driver").to_string();
        assert!(error.contains(why) && error.contains(stub.path.to_str().expect("a path")), "{error}");
    }
    let error = CudaDriver::open(&Search::new().path("no/libcuda.so.1")).expect_err("no driver").to_string();
    assert!(error.contains("tried no/libcuda.so.1: cannot open shared object file"), "{error}");
}

#[test]
fn a_driver_that_is_nowhere_is_a_setup_error() {
    // Where there is one, it says what its devices are.
    match CudaDriver::open(&Search::new()) {
        Ok(cuda) => assert!(cuda.device_count().is_ok()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Setup);
            assert!(error.to_string().contains("tried libcuda.so.1: "), "{error}");
        }
    }
}

#[test]
fn devices_say_what_they_are() {
    let (cuda, stub) = open();
    assert_eq!((cuda.driver_version(), cuda.device_count()), (Ok(12_080), Ok(2)));
    let info = cuda.device_info(Device(1)).expect("a device");
    assert_eq!((&*info.name, info.capability, &*info.bus), ("Stub 1", (9, 0), "0000:3b:00.0"));
    assert_eq!((info.multiprocessors, info.memory), (132, 1 << 21));
    assert_eq!(cuda.device_info(Device(2)), Err(CudaCode::INVALID_DEVICE));
    // Nobody uses a card that is only looked at.
    assert_eq!(stub.ask("stub_retained"), 0);
    assert_eq!(cuda.memory_info(FIRST), Ok(MemoryInfo { free: 1 << 20, total: 1 << 21 }));
    assert_eq!(cuda.error_text(CudaCode(100)), "CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected");
    assert_eq!(cuda.error_text(CudaCode(4242)), "a CUDA error that is not known (4242)");
}

#[test]
fn bytes_go_to_a_device_and_come_back() {
    let (cuda, stub) = open();
    let stream = cuda.create_stream(FIRST, false).expect("a stream");
    let (host, device) = (cuda.allocate_host(8).expect("memory"), cuda.allocate(FIRST, 16).expect("memory"));
    cuda.write_host(host, b"abcdefgh").expect("written");
    cuda.fill(device, b'.', stream).expect("filled");
    cuda.copy(device.part(4, 8).expect("a part"), host, stream).expect("copied");
    cuda.copy(host, device.part(0, 8).expect("a part"), stream).expect("copied");
    cuda.synchronize_stream(stream).expect("done");
    let mut read = [0; 8];
    cuda.read_host(host, &mut read).expect("read");
    assert_eq!(&read, b"....abcd");
    assert_eq!(cuda.copy(host, device, stream), Err(CudaCode::INVALID_VALUE));
    assert_eq!(stub.ask("stub_depth"), 0);
}

#[test]
fn memory_is_freed_once_and_pinned_memory_read_only_while_it_is_there() {
    let (cuda, stub) = open();
    let (host, device) = (cuda.allocate_host(8).expect("memory"), cuda.allocate(FIRST, 8).expect("memory"));
    let part = device.part(0, 4).expect("a part");
    assert_eq!(cuda.free(FIRST, part), Err(CudaCode::INVALID_VALUE));
    assert_eq!(cuda.free(Device(1), device), Err(CudaCode::INVALID_VALUE));
    assert_eq!((cuda.free(FIRST, device), cuda.free(FIRST, device)), (Ok(()), Err(CudaCode::INVALID_VALUE)));
    assert_eq!(cuda.read_host(device, &mut [0; 8]), Err(CudaCode::INVALID_VALUE));
    assert_eq!(cuda.read_host(host.part(4, 4).expect("a part"), &mut [0; 4]), Ok(()));
    assert_eq!(cuda.read_host(host, &mut [0; 4]), Err(CudaCode::INVALID_VALUE));
    assert_eq!((cuda.free_host(host), cuda.free_host(host)), (Ok(()), Err(CudaCode::INVALID_VALUE)));
    assert_eq!(cuda.write_host(host, &[0; 8]), Err(CudaCode::INVALID_VALUE));
    assert_eq!((cuda.allocate(FIRST, 0), cuda.free(FIRST, Span::EMPTY)), (Ok(Span::EMPTY), Ok(())));
    assert_eq!(cuda.allocate(FIRST, 1 << 30), Err(CudaCode::OUT_OF_MEMORY));
    assert_eq!(stub.ask("stub_alive"), 0);
}

#[test]
fn pinned_memory_goes_through_a_context_that_is_there() {
    let (cuda, stub) = open();
    let stream = cuda.create_stream(Device(1), false).expect("a stream");
    let host = cuda.allocate_host(8).expect("memory");
    // What comes to be there later does not matter to it.
    let first = cuda.allocate(FIRST, 8).expect("memory");
    assert_eq!((cuda.free_host(host), stub.ask("stub_retained")), (Ok(()), 3));
    assert_eq!((cuda.free(FIRST, first), cuda.destroy_stream(stream)), (Ok(()), Ok(())));
    let (cuda, stub) = open();
    let stream = cuda.create_stream(Device(1), false).expect("a stream");
    let host = cuda.allocate_host(8).expect("memory");
    assert_eq!((cuda.free_host(host), cuda.destroy_stream(stream)), (Ok(()), Ok(())));
    assert_eq!(stub.ask("stub_retained"), 2);
}

#[test]
fn a_thread_that_is_a_devices_has_its_context_and_disturbs_no_capture() {
    let (cuda, stub) = open();
    let has = || (stub.ask("stub_depth"), stub.ask("stub_capture_mode"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cuda.enter_thread(Device(1)).expect("a device");
            assert_eq!((has(), stub.ask("stub_retained")), ((1, RELAXED), 2));
        });
    });
    assert_eq!((has(), cuda.enter_thread(Device(2))), ((0, 0), Err(CudaCode::INVALID_DEVICE)));
}

#[test]
fn streams_and_events_are_known_until_they_are_given_back() {
    let (cuda, stub) = open();
    let (low, high) = (cuda.create_stream(FIRST, false), cuda.create_stream(Device(1), true));
    let (low, high) = (low.expect("a stream"), high.expect("a stream"));
    // The stub has streams of high priority captured then.
    stub.tell("stub_capture", 1);
    assert_eq!((cuda.is_capturing(low), cuda.is_capturing(high)), (Ok(false), Ok(true)));
    assert_eq!((cuda.stream_device(low), cuda.stream_device(high)), (Ok(FIRST), Ok(Device(1))));
    let event = cuda.create_event(FIRST, EventKind::Timing).expect("an event");
    let later = cuda.create_event(FIRST, EventKind::Timing).expect("an event");
    assert_eq!(cuda.elapsed(event, later), Err(CudaCode::INVALID_HANDLE));
    assert_eq!((cuda.record_event(event, low), cuda.record_event(later, low)), (Ok(()), Ok(())));
    assert_eq!((cuda.elapsed(event, later), cuda.wait_event(high, event)), (Ok(1.5), Ok(())));
    stub.tell("stub_busy", 2);
    assert_eq!(
        (cuda.query_event(event), cuda.query_stream(low), cuda.query_event(event)),
        (Ok(false), Ok(false), Ok(true))
    );
    for event in [event, later] {
        assert_eq!((cuda.destroy_event(event), cuda.destroy_event(event)), (Ok(()), Err(CudaCode::INVALID_HANDLE)));
    }
    for stream in [low, high] {
        assert_eq!((cuda.destroy_stream(stream), cuda.query_stream(stream)), (Ok(()), Err(CudaCode::INVALID_HANDLE)));
    }
    assert_eq!((stub.ask("stub_alive"), stub.ask("stub_depth")), (0, 0));
}

#[test]
fn a_stream_of_somebody_elses_is_not_destroyed() {
    let (cuda, stub) = open();
    let own = cuda.create_stream(FIRST, false).expect("a stream");
    // SAFETY: the null stream is one of every context; the stub only compares it.
    let adopted = unsafe { cuda.adopt_stream(FIRST, 0) };
    assert_eq!(cuda.query_stream(adopted), Err(CudaCode::INVALID_HANDLE));
    assert_eq!((cuda.stream_device(adopted), cuda.destroy_stream(adopted)), (Ok(FIRST), Ok(())));
    assert_eq!((stub.ask("stub_alive"), cuda.destroy_stream(own)), (1, Ok(())));
}

#[test]
fn a_function_of_the_host_runs_once_and_its_panic_stays() {
    let (cuda, stub) = open();
    let stream = cuda.create_stream(FIRST, false).expect("a stream");
    let calls = Arc::new(AtomicU32::new(0));
    let count = calls.clone();
    cuda.call_host(stream, Box::new(move || count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed)))
        .expect("called");
    cuda.call_host(stream, Box::new(|| panic!("a panic that is meant"))).expect("called");
    stub.tell("stub_answer", 999);
    let count = calls.clone();
    let refused =
        cuda.call_host(stream, Box::new(move || count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed)));
    assert_eq!((refused, calls.load(Ordering::Relaxed), Arc::strong_count(&calls)), (Err(CudaCode(999)), 1, 1));
}

#[test]
fn a_device_is_remembered_to_be_lost() {
    let (cuda, stub) = open();
    let stream = cuda.create_stream(FIRST, false).expect("a stream");
    stub.tell("stub_answer", 2);
    assert_eq!((cuda.query_stream(stream), cuda.sticky_error(FIRST)), (Err(CudaCode::OUT_OF_MEMORY), None));
    stub.tell("stub_answer", 700);
    assert_eq!(cuda.query_stream(stream), Err(CudaCode::ILLEGAL_ADDRESS));
    assert_eq!((cuda.sticky_error(FIRST), cuda.sticky_error(Device(1))), (Some(CudaCode::ILLEGAL_ADDRESS), None));
}

#[test]
fn kernels_are_loaded_by_name_and_launched_by_number() {
    let (cuda, stub) = open();
    let stream = cuda.create_stream(FIRST, false).expect("a stream");
    let span = cuda.allocate(FIRST, 8).expect("memory");
    let (grid, arguments) = (Grid { blocks: 3, threads: 128 }, [Argument::Write(span), Argument::Real(0.5)]);
    assert_eq!(cuda.launch(KernelId(7), grid, &arguments, stream), Err(CudaCode::NOT_FOUND));
    assert_eq!(cuda.load(FIRST, b"// ptx", &[(KernelId(7), "other")]), Err(CudaCode::NOT_FOUND));
    assert_eq!(cuda.load(FIRST, b"nonsense", &[(KernelId(7), "fold")]), Err(CudaCode(218)));
    cuda.load(FIRST, b"// ptx", &[(KernelId(7), "fold")]).expect("loaded");
    cuda.launch(KernelId(7), grid, &arguments, stream).expect("launched");
    // SAFETY: the type of this function.
    let ask: unsafe extern "C" fn(*mut u32, *mut u32, *mut u64, *mut f32) = unsafe { stub.function("stub_launched") };
    let (mut blocks, mut threads, mut first, mut second) = (0, 0, 0, 0.0);
    // SAFETY: room for four numbers.
    unsafe { ask(&mut blocks, &mut threads, &mut first, &mut second) };
    assert_eq!((blocks, threads, first, second), (3, 128, span.address(), 0.5));
    let elsewhere = cuda.create_stream(Device(1), false).expect("a stream");
    assert_eq!(cuda.launch(KernelId(7), grid, &arguments, elsewhere), Err(CudaCode::NOT_FOUND));
}

#[test]
fn where_a_driver_does_not_read_what_a_newer_compiler_wrote_the_shipped_kernels_do() {
    let (cuda, stub) = open();
    let compiler = Stub::build("nvrtc", "libnvrtc.so.12", &[]);
    let nvrtc = Nvrtc::open(&Search::new().path(&compiler.path)).expect("the stub");
    let (shipped, compiled) = (Program::new(), Program::new().compiler(&nvrtc));
    let loads: [fn(&Program<'_>, &CudaDriver) -> phalanx_core::Result<Origin>; 2] =
        [|program, cuda| program.load(cuda, FIRST), |program, cuda| program.load_nan_check(cuda, FIRST)];
    for load in loads {
        assert_eq!(load(&compiled, &cuda).expect("loaded"), Origin::Compiled);
        assert_eq!(load(&shipped, &cuda).expect("loaded"), Origin::Shipped);
        stub.tell("stub_answer", UNSUPPORTED_PTX_VERSION);
        assert_eq!(load(&compiled, &cuda).expect("loaded"), Origin::Shipped);
        stub.tell("stub_answer", UNSUPPORTED_PTX_VERSION);
        let refused = load(&shipped, &cuda).expect_err("no more than the shipped");
        assert_eq!(refused.kind(), ErrorKind::Device);
        assert!(refused.to_string().contains("cuModuleLoadData") && refused.to_string().contains("(222)"), "{refused}");
    }
    let stream = cuda.create_stream(FIRST, false).expect("a stream");
    let (memory, first) = (cuda.allocate(FIRST, 8).expect("memory"), cuda.allocate(FIRST, 8).expect("memory"));
    let pattern = Pattern::of(DType::F32).expect("a type with NaN");
    // It is known, though the stub does not run it.
    let launched = cuda.launch(pattern.kernel(), pattern.grid(8), &pattern.arguments(memory, first), stream);
    assert_eq!(launched, Err(CudaCode::INVALID_VALUE));
}

#[test]
fn the_kernel_of_this_crate_gets_its_arguments_as_a_device_reads_them() {
    let (cuda, _stub) = open();
    assert_eq!(Program::new().load(&cuda, FIRST).expect("kernels"), Origin::Shipped);
    let stream = cuda.create_stream(FIRST, false).expect("a stream");
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>();
    let memory = |bytes: &[u8]| {
        let (host, device) = (cuda.allocate_host(bytes.len()), cuda.allocate(FIRST, bytes.len()));
        let (host, device) = (host.expect("memory"), device.expect("memory"));
        cuda.write_host(host, bytes).expect("written");
        cuda.copy(device, host, stream).expect("copied");
        device
    };
    let stretches = [Stretch { from: 8, to: 4, len: 3, zeros: 2 }, Stretch { from: 0, to: 24, len: 2, zeros: 0 }];
    let plan = Plan::new(&stretches);
    let into = memory(&floats(&[9.0; 9]));
    let (from, table) = (memory(&floats(&[1.0, 2.0, 3.0, 4.0, 5.0])), memory(plan.bytes()));
    let launch = |adds, stretches: std::ops::Range<usize>, (from, skip), divisor| {
        let tiles = plan.tiles(stretches);
        let (first, tiles) = (tiles.start, tiles.end - tiles.start);
        let carry = Carry { into, from, table, stretches: plan.stretches(), first, tiles, skip, divisor };
        let kernel = Carry::kernel(DType::F32, DType::F32, adds).expect("a kernel");
        cuda.launch(kernel, Plan::grid(tiles, 1), &carry.arguments(), stream).expect("launched");
    };
    launch(false, 0..2, (from, 0), 1.0);
    launch(true, 0..1, (from.part(8, 12).expect("a part"), 8), 2.0);
    let host = cuda.allocate_host(36).expect("memory");
    cuda.copy(host, into, stream).expect("copied");
    let mut got = [0; 36];
    cuda.read_host(host, &mut got).expect("read");
    assert_eq!(got.to_vec(), floats(&[9.0, 4.5, 6.0, 7.5, 0.0, 0.0, 1.0, 2.0, 9.0]));
}

#[test]
fn memory_and_events_cross_to_another_process() {
    let (cuda, stub) = open();
    let stream = cuda.create_stream(FIRST, false).expect("a stream");
    let span = cuda.allocate(FIRST, 64).expect("memory");
    let part = span.part(16, 32).expect("a part");
    let shared = cuda.export_memory(part).expect("exported");
    assert_eq!(shared.0.len(), 80);
    // The stub gives the same memory again; a driver would not, to the process that it is of.
    let taken = cuda.import_memory(FIRST, &shared).expect("imported");
    assert_eq!(taken, part);
    assert_eq!((cuda.close_memory(taken), cuda.close_memory(taken)), (Ok(()), Err(CudaCode::INVALID_VALUE)));
    let mut beyond = shared.clone();
    beyond.0[72] = 49;
    assert_eq!(cuda.import_memory(FIRST, &beyond), Err(CudaCode::INVALID_VALUE));
    for wrong in [0, 63, 64, 79] {
        let cut = Shared(shared.0[..wrong].to_vec());
        assert_eq!(cuda.import_memory(FIRST, &cut), Err(CudaCode::INVALID_VALUE));
    }
    let event = cuda.create_event(FIRST, EventKind::Interprocess).expect("an event");
    let plain = cuda.create_event(FIRST, EventKind::Order).expect("an event");
    let taken = cuda.import_event(FIRST, &cuda.export_event(event).expect("exported")).expect("imported");
    assert_eq!(cuda.record_event(taken, stream), Ok(()));
    assert_eq!(cuda.export_event(plain), Err(CudaCode::INVALID_HANDLE));
    assert_eq!(cuda.export_memory(Span::EMPTY), Err(CudaCode::INVALID_VALUE));
    for event in [event, plain, taken] {
        cuda.destroy_event(event).expect("an event");
    }
    cuda.free(FIRST, span).expect("memory");
    cuda.destroy_stream(stream).expect("a stream");
    assert_eq!((stub.ask("stub_alive"), stub.ask("stub_depth")), (0, 0));
}

#[test]
fn a_program_is_compiled_or_the_compilers_words_are_told() {
    let stub = Stub::build("nvrtc", "libnvrtc.so.12", &[]);
    let nvrtc = Nvrtc::open(&Search::new().path(&stub.path)).expect("the stub");
    assert_eq!((nvrtc.version(), nvrtc.path()), ((12, 8), stub.path.to_str().expect("a path")));
    let ptx = nvrtc.compile("fold.cu", "int a;", &["-a", "-b"]).expect("compiled");
    assert_eq!(String::from_utf8_lossy(&ptx), "// ptx of fold.cu: int a; -a -b");
    let error = nvrtc.compile("fold.cu", "wrong", &[]).expect_err("wrong").to_string();
    let words = "compiling fold.cu for the device: NVRTC_ERROR_COMPILATION (6): line 1: this is wrong";
    assert_eq!(error, words);
    assert!(nvrtc.compile("fold.cu", "a\0b", &[]).is_err());
}
