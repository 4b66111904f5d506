//! The real libraries, as Python's packages have them. Ignored unless asked for: `interop/nccl` installs them.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use phalanx_nccl::api::{CommConfig, Cuda, Device, Nccl, Status, Version};
use phalanx_nccl::kernels::{self, nan};
use phalanx_nccl::library::{CudaDriver, NcclLibrary, Nvrtc, Origin, Program, Search};

use crate::Pair;
use crate::complete::full;
use crate::stub::Stub;

/// The packages that `interop/nccl` installed.
fn packages() -> PathBuf {
    std::env::var_os("PHALANX_TEST_PACKAGES").expect("PHALANX_TEST_PACKAGES").into()
}

/// The version that was asked for.
fn wanted() -> Version {
    let text = std::env::var("PHALANX_TEST_NCCL_VERSION").expect("PHALANX_TEST_NCCL_VERSION");
    let mut numbers = text.split('.').map(|number| number.parse().expect("a number"));
    let mut next = || numbers.next().expect("three numbers");
    Version::new(next(), next(), next())
}

fn library() -> NcclLibrary {
    NcclLibrary::open(&Search::new().path(packages().join("nvidia/nccl/lib")), driver()).expect("NCCL")
}

fn driver() -> Option<std::sync::Arc<CudaDriver>> {
    CudaDriver::open(&Search::new()).ok().map(std::sync::Arc::new)
}

/// Whatever the library does, it is done within a time.
fn soon<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(run()));
    told.recv_timeout(Duration::from_secs(60)).expect("an answer within a minute")
}

#[test]
#[ignore = "needs NCCL: interop/nccl"]
fn nccl_is_found_in_pythons_packages() {
    let version = soon(|| NcclLibrary::open(&Search::new().python(packages()), None).map(|nccl| nccl.version()));
    // Another may be installed where the loader looks first.
    assert!(version.expect("NCCL").expect("a version") >= Version::OLDEST);
    let nccl = soon(library);
    assert_eq!(nccl.version(), Ok(wanted()));
    assert!(nccl.path().starts_with(packages().to_str().expect("a path")), "{}", nccl.path());
}

#[test]
#[ignore = "needs NCCL: interop/nccl"]
fn nccl_has_every_function_of_its_version() {
    let nccl = soon(library);
    let version = wanted();
    for absent in nccl.missing() {
        assert!(absent.needed > version, "{absent}");
    }
    assert!(version < Version::new(2, 29, 7) || nccl.missing().is_empty());
}

#[test]
#[ignore = "needs NCCL: interop/nccl"]
fn nccl_makes_ids_and_has_words_for_its_results() {
    let nccl = soon(library);
    let (first, second) = soon(move || (nccl.unique_id(), nccl.unique_id()));
    assert!(first.is_ok() && second.is_ok() && first != second);
    let nccl = soon(library);
    assert_eq!(nccl.error_text(Status::SUCCESS), "no error (0)");
    let timeout = nccl.error_text(Status::TIMEOUT);
    assert_eq!(timeout.contains("timeout"), wanted() >= Version::new(2, 30, 0), "{timeout}");
    assert_eq!(nccl.error_text(Status(77)), "unknown result code (77)");
}

#[test]
#[ignore = "needs NCCL: interop/nccl"]
fn nccl_without_a_card_fails_with_its_own_words() {
    if driver().is_some_and(|driver| driver.device_count().is_ok_and(|count| count > 0)) {
        return;
    }
    let (status, text, words) = soon(|| {
        let nccl = library();
        let id = nccl.unique_id().expect("an id");
        let (status, comm) = nccl.init(Device(0), 0, 1, &id, &CommConfig::default());
        assert_eq!(comm, phalanx_nccl::api::Comm::NONE);
        (status, nccl.error_text(status), nccl.last_error(None))
    });
    assert!(matches!(status, Status::UNHANDLED_CUDA | Status::SYSTEM), "{status}");
    assert!(text.contains("error") && text.contains(&format!("({})", status.0)), "{text}");
    assert!(!words.is_empty() || wanted() < Version::new(2, 20, 0), "no words");
    let allocated = soon(|| library().allocate(Device(0), 1024));
    assert!(allocated.is_err_and(|status| !status.is_success()));
}

#[test]
#[ignore = "needs NCCL: interop/nccl"]
fn nccl_configurations_are_as_the_header_has_them_to_the_byte() {
    let header = Stub::header(&packages().join("nvidia/nccl/include"));
    let pair = Pair::new(wanted().code());
    let (status, _) = pair.nccl.init(Device(0), 0, 1, &pair.id(), &full());
    assert_eq!(status, Status::SUCCESS);
    let byte_len = header.ask("header_len");
    assert_eq!(byte_len, pair.stub.ask("stub_config_len"));
    let bytes = |stub: &Stub, name: &str| {
        // SAFETY: the type of both functions.
        let ask: unsafe extern "C" fn(*mut u8) = unsafe { stub.function(name) };
        let mut bytes = vec![0; usize::try_from(byte_len).expect("a length")];
        // SAFETY: room for as many bytes as both have.
        unsafe { ask(bytes.as_mut_ptr()) };
        bytes
    };
    let (theirs, mut ours) = (bytes(&header, "header_config"), bytes(&pair.stub, "stub_config"));
    // SAFETY: the type of this function.
    let name_at: unsafe extern "C" fn(i32) -> i32 = unsafe { header.function("header_name_at") };
    for second in [0, 1] {
        // SAFETY: any number will do.
        let at = unsafe { name_at(second) };
        // A name is where it is. What it says is another test's matter.
        if let Ok(at) = usize::try_from(at) {
            assert_ne!(ours[at..at + 8], [0; 8]);
            ours[at..at + 8].fill(0);
        }
    }
    assert_eq!(ours, theirs);
}

#[test]
#[ignore = "needs NVRTC: interop/nccl"]
fn nvrtc_compiles_the_kernels_of_this_crate_once() {
    let cache = std::env::temp_dir().join(format!("phalanx-cache-{}", std::process::id()));
    std::fs::create_dir_all(&cache).expect("a directory");
    let nvrtc = Nvrtc::open(&Search::new().python(packages())).expect("NVRTC");
    let program = Program::new().compiler(&nvrtc).cache(&cache);
    let (compiled, origin) = program.image((8, 0));
    assert_eq!(origin, Origin::Compiled);
    assert_eq!(program.image((8, 0)), (compiled.clone(), Origin::Cached));
    assert_eq!(Program::new().image((8, 0)).1, Origin::Shipped);
    std::fs::remove_dir_all(&cache).expect("removed");
    let ptx = String::from_utf8(compiled).expect("text");
    for (_, name) in kernels::all() {
        assert!(ptx.contains(&format!(".visible .entry {name}(")), "{name}");
    }
    if let Some(place) = std::env::var_os("PHALANX_TEST_SHIP").map(PathBuf::from) {
        // The check for NaN is for older cards too.
        let check = nvrtc.compile("nan.cu", nan::SOURCE, &["--gpu-architecture=compute_60"]).expect("PTX");
        ship(&place, "kernels", kernels::SOURCE, &ptx);
        ship(&place.with_file_name("nan.ptx"), "nan", nan::SOURCE, &String::from_utf8(check).expect("text"));
    }
}

/// Writes what is shipped, the first line of which says of which source it was made.
fn ship(place: &Path, what: &str, source: &str, ptx: &str) {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let digest = source.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    let lines: Vec<&str> = ptx.lines().map(str::trim_end).collect();
    std::fs::write(place, format!("// made of {what} {digest:016x}\n{}\n", lines.join("\n"))).expect("written");
}

#[test]
#[ignore = "needs NVRTC: interop/nccl"]
fn nvrtc_compiles_without_a_card() {
    let ptx = soon(|| {
        let nvrtc = Nvrtc::open(&Search::new().python(packages()))?;
        let wrong = nvrtc.compile("wrong.cu", "int a = ;", &[]).expect_err("wrong").to_string();
        assert!(wrong.contains("wrong.cu(1): error"), "{wrong}");
        let source = "extern \"C\" __global__ void twice(float* a) { a[threadIdx.x] *= 2.0f; }";
        let check = nvrtc.compile("nan.cu", nan::SOURCE, &["--gpu-architecture=compute_80"])?;
        Ok::<_, phalanx_core::Error>([nvrtc.compile("twice.cu", source, &["--gpu-architecture=compute_80"])?, check])
    });
    let [ptx, check] = ptx.expect("PTX").map(|ptx| String::from_utf8(ptx).expect("text"));
    for (_, name) in nan::KERNELS {
        assert!(check.contains(&format!(".visible .entry {name}(")), "{check}");
    }
    assert!(ptx.contains(".visible .entry twice(") && ptx.contains(".target sm_80"), "{ptx}");
}
