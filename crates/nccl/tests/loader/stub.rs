//! Stubs: small libraries of C that stand for NVIDIA's, built when a test asks for one, and asked afterwards what they were called with.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use libloading::Library;

/// A library of a test's own, and its directory, which goes with it.
pub(crate) struct Stub {
    directory: PathBuf,
    pub(crate) path: PathBuf,
}

impl Stub {
    /// NCCL of a version, by its number.
    pub(crate) fn nccl(version: u32) -> Stub {
        Stub::build("nccl", "libnccl.so.2", &[&format!("VERSION={version}")])
    }

    /// The CUDA driver.
    pub(crate) fn cuda() -> Stub {
        Stub::build("cuda", "libcuda.so.1", &[])
    }

    /// From a source, as a file of this name, with what is defined for it.
    pub(crate) fn build(source: &str, name: &str, defined: &[&str]) -> Stub {
        let directory = directory();
        let path = directory.join(name);
        compile(source, &path, defined);
        Stub { directory, path }
    }

    /// A library that was built already, in a directory that goes with it.
    pub(crate) fn new(directory: PathBuf, path: PathBuf) -> Stub {
        Stub { directory, path }
    }

    /// A configuration as the header of an installed NCCL has it, from the directory where that is.
    pub(crate) fn header(include: &Path) -> Stub {
        let directory = directory();
        let path = directory.join("libheader.so");
        for empty in ["cuda_runtime.h", "cuda_fp16.h"] {
            fs::write(directory.join(empty), "").expect("a file");
        }
        run_cc("header", &path, &[&directory, include].map(|path| format!("-I{}", path.display())));
        Stub { directory, path }
    }

    /// A function of the stub's.
    ///
    /// # Safety
    ///
    /// `F` is the type of a pointer to it.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: a library of ours, whose start does nothing.
        let library = unsafe { Library::new(&self.path) }.expect("the stub");
        // SAFETY: as the caller says.
        let function = *unsafe { library.get::<F>(name) }.expect("a function of the stub");
        // Opened once more for good, like the loader's.
        std::mem::forget(library);
        function
    }

    /// Has it do something with a number.
    pub(crate) fn tell(&self, name: &str, number: c_int) {
        // SAFETY: all functions of the stubs that are told something have this type.
        let tell: unsafe extern "C" fn(c_int) = unsafe { self.function(name) };
        // SAFETY: any number will do.
        unsafe { tell(number) };
    }

    /// Asks it for a number.
    pub(crate) fn ask(&self, name: &str) -> c_int {
        // SAFETY: all functions of the stubs that are asked something have this type.
        let ask: unsafe extern "C" fn() -> c_int = unsafe { self.function(name) };
        // SAFETY: it takes nothing.
        unsafe { ask() }
    }

    /// What NCCL's stub was last called with.
    pub(crate) fn last_call(&self) -> Called {
        // SAFETY: the type of this function.
        let ask: unsafe extern "C" fn(*mut RawCall) = unsafe { self.function("stub_call") };
        let mut call = RawCall::default();
        // SAFETY: room for a call.
        unsafe { ask(&mut call) };
        if call.name.is_null() {
            return Called { name: String::new(), raw: call };
        }
        // SAFETY: the name is a text of the stub's, which stays.
        let name = unsafe { CStr::from_ptr(call.name) };
        Called { name: name.to_str().expect("a name").to_owned(), raw: call }
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A call as the stub notes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawCall {
    name: *const c_char,
    pub(crate) send: *const c_void,
    pub(crate) recv: *const c_void,
    pub(crate) count: usize,
    pub(crate) dtype: c_int,
    pub(crate) op: c_int,
    pub(crate) root: c_int,
    pub(crate) comm: *const c_void,
    pub(crate) stream: *const c_void,
}

impl Default for RawCall {
    fn default() -> RawCall {
        let none = std::ptr::null();
        let (name, send, recv, comm, stream) = (c"".as_ptr(), none, none, none, none);
        RawCall { name, send, recv, count: 0, dtype: 0, op: 0, root: 0, comm, stream }
    }
}

/// The same, with its name.
pub(crate) struct Called {
    pub(crate) name: String,
    pub(crate) raw: RawCall,
}

impl Called {
    /// Its name, count, type, reduction and root or peer; -1 where it has none.
    pub(crate) fn numbers(&self) -> (&str, usize, i32, i32, i32) {
        (&self.name, self.raw.count, self.raw.dtype, self.raw.op, self.raw.root)
    }
}

/// A directory of a test's own below the target directory.
pub(crate) fn directory() -> PathBuf {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("loader-{}-{number}", process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    directory
}

/// Compiles a source to a library; one that was compiled before is not compiled again.
pub(crate) fn compile(source: &str, path: &Path, defined: &[&str]) {
    static BUILT: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let key = format!("{source} {defined:?}");
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let library = built.entry(key).or_insert_with(|| {
        run_cc(source, path, &defined.iter().map(|define| format!("-D{define}")).collect::<Vec<_>>());
        fs::read(path).expect("what was compiled")
    });
    // Under a name of its own, since two that are one file are one library to the loader.
    let _ = fs::remove_file(path);
    fs::write(path, library).expect("a file");
}

/// Has the C compiler make a library, with these arguments of its command line.
pub(crate) fn run_cc(source: &str, path: &Path, arguments: &[String]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/stub/{source}.c"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", "-o"])
        .arg(path)
        .arg(source)
        .args(arguments);
    let built = cc.output().expect("a C compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

/// That nothing stays alive, by this count. Whoever holds something may give it back in its own time.
pub(crate) fn all_is_given_back(alive: impl Fn() -> c_int) {
    let bound = Instant::now() + Duration::from_secs(60);
    while alive() > 0 {
        assert!(Instant::now() < bound, "something is never given back");
        thread::yield_now();
    }
}
