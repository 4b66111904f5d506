//! A shared object: opened, asked for its functions, and never closed once it is used.

use std::error::Error;
use std::ffi::{CStr, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::path::Path;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use nix::libc;

/// An opened library. Dropped, it is closed again.
#[derive(Debug)]
pub(super) struct SharedObject {
    library: Library,
    name: String,
}

impl SharedObject {
    /// Opens a file, or what the system's loader finds under a bare name.
    pub(super) fn open(name: &Path) -> Result<SharedObject, String> {
        // SAFETY: what runs on opening is the library's own start, which whoever installed or named the library trusts. All its
        // functions are bound now, since one that cannot be found later ends the process.
        let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| error.source().map_or_else(|| error.to_string(), ToString::to_string))?;
        Ok(SharedObject { library, name: name.display().to_string() })
    }

    /// The function of a name, if it is there.
    ///
    /// # Safety
    ///
    /// `F` is the type of a pointer to a function of C, and the function has that signature.
    pub(super) unsafe fn function<F: Copy>(&self, name: &str) -> Option<F> {
        // SAFETY: as the caller promises.
        let symbol = unsafe { self.library.get::<F>(name) };
        symbol.ok().map(|symbol| *symbol)
    }

    /// The file in which a function is, as the loader found it; the name it was opened by where it does not say.
    pub(super) fn path_of(&self, name: &str) -> String {
        // SAFETY: nothing is called through it, it is only an address.
        let address = unsafe { self.function::<*const c_void>(name) };
        address.and_then(file_of).unwrap_or_else(|| self.name.clone())
    }

    /// Keeps it for as long as the process runs: its threads, and functions that the system calls at the end, never go.
    pub(super) fn keep(self) {
        let _never_closed = ManuallyDrop::new(self);
    }
}

fn file_of(address: *const c_void) -> Option<String> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: any address may be asked for; the answer goes where there is room for it.
    let known = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    if known == 0 {
        return None;
    }
    // SAFETY: it was filled, as the answer says.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a name that ends in a zero, which lives as long as the library, and that is open.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(name.to_string_lossy().into_owned())
}
