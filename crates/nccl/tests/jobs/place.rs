//! Where the card and its libraries are, as whoever runs the tests on one says: `interop/card` packs those tests.

use std::env;
use std::sync::Arc;

use phalanx_nccl::api::Device;
use phalanx_nccl::library::{CudaDriver, NcclLibrary, Nvrtc, Program, Search};

/// The first card, or that of `PHALANX_TEST_DEVICE`.
pub(crate) fn device() -> Device {
    Device(env::var("PHALANX_TEST_DEVICE").map_or(0, |number| number.parse().expect("a number")))
}

/// Where the driver and the compiler are looked for: in the Python of `PHALANX_TEST_PACKAGES` too.
pub(crate) fn search() -> Search {
    env::var_os(PACKAGES).into_iter().fold(Search::new(), |search, prefix| search.python(prefix))
}

/// NCCL, looked for in the same places, or at `PHALANX_TEST_NCCL` alone. Without one what goes over it is left out, which is said; whoever names
/// one has it.
#[expect(clippy::print_stderr, reason = "whoever runs the tests sees what was left out")]
pub(crate) fn nccl(cuda: &Arc<CudaDriver>) -> Option<NcclLibrary> {
    let named = env::var_os("PHALANX_TEST_NCCL");
    let place = named.iter().fold(search(), |search, path| search.path(path));
    let found = NcclLibrary::open(&place, Some(Arc::clone(cuda)));
    if let Err(why) = &found {
        assert!(named.is_none(), "{why}");
        eprintln!("what goes over NCCL is left out: {why}");
    }
    found.ok()
}

/// The compiler. Without one what it would make is left out, which is said; whoever names a Python has one in it.
#[expect(clippy::print_stderr, reason = "whoever runs the tests sees what was left out")]
pub(crate) fn compiler() -> Option<Nvrtc> {
    let found = Nvrtc::open(&search());
    if let Err(why) = &found {
        assert!(env::var_os(PACKAGES).is_none(), "{why}");
        eprintln!("compiled kernels are left out: {why}");
    }
    found.ok()
}

/// The kernels that are shipped, and those that this compiler makes.
pub(crate) fn programs(compiler: Option<&Nvrtc>) -> Vec<Program<'_>> {
    let compiled = compiler.map(|compiler| Program::new().compiler(compiler));
    [Program::new()].into_iter().chain(compiled).collect()
}

/// Has the card know the kernels, and says whose they are: a driver that is too old for those of the compiler has the shipped ones.
#[expect(clippy::print_stderr, reason = "whoever runs the tests sees which kernels were tried")]
pub(crate) fn load(program: &Program<'_>, cuda: &CudaDriver) {
    let (kernels, check) = (program.load(cuda, device()), program.load_nan_check(cuda, device()));
    let (kernels, check) = (kernels.expect("kernels"), check.expect("the check for NaN"));
    eprintln!("{program:?}: kernels {kernels:?}, check for NaN {check:?}");
}

const PACKAGES: &str = "PHALANX_TEST_PACKAGES";
