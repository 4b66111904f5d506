//! NCCL as it is installed, opened at run time.

mod calls;
mod image;
mod member;
mod reach;
mod refusal;
mod table;

use std::fmt;
use std::sync::{Arc, Mutex};

use phalanx_core::Result;
use rustc_hash::FxHashMap;

use self::image::Names;
use self::member::{Known, Member};
use self::table::Functions;
use super::cuda::CudaDriver;
use super::search::{Search, Wanted};
use super::shared::SharedObject;
use super::table::Absent;
use crate::api::{Device, Status, Version};
use crate::register::Register;

/// NCCL as it is installed.
///
/// Every function is optional but the one that tells the version: what a library lacks is answered with [`Status::ABSENT`], and
/// [`last_error`](crate::api::Nccl::last_error) names it, with the version that is needed. It is never closed.
///
/// Memory must outlast what was submitted with it. What is submitted is checked against the bounds of its memory first.
pub struct NcclLibrary {
    functions: Functions,
    version: Version,
    path: String,
    driver: Option<Arc<CudaDriver>>,
    comms: Register<Member>,
    registrations: Register<Known>,
    windows: Register<Known>,
    /// What [`allocate`](crate::api::Nccl::allocate) gave: the device and the length, by address.
    allocations: Mutex<FxHashMap<u64, (Device, usize)>>,
    names: Names,
}

impl NcclLibrary {
    /// Opens the first library of 2.18 or later. Its streams and devices are those of the driver; without one it can tell its version
    /// and make ids, but no communicator.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup): no library will do. Says what was tried, and why it would not.
    pub fn open(search: &Search, driver: Option<Arc<CudaDriver>>) -> Result<NcclLibrary> {
        let (functions, version, path) = search.find(&NCCL, accept)?;
        if let Some(flaw) = flaw(version) {
            log::warn!("NCCL {version} at {path}: {flaw}");
        }
        Ok(NcclLibrary {
            functions,
            version,
            path,
            driver,
            comms: Register::new(),
            registrations: Register::new(),
            windows: Register::new(),
            allocations: Mutex::default(),
            names: Names::default(),
        })
    }

    /// The file that was opened.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The functions that this library lacks.
    pub fn missing(&self) -> Vec<Absent> {
        let missing = self.functions.missing().into_iter();
        missing.map(|(function, needed)| Absent { function, found: self.version, needed }).collect()
    }
}

impl fmt::Debug for NcclLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NCCL {} at {}", self.version, self.path)
    }
}

/// Whether a library is NCCL, and new enough.
fn accept(object: SharedObject) -> Result<(Functions, Version, String), String> {
    let functions = Functions::of(&object);
    let name = functions.get_version.name;
    let Some(tell) = functions.get_version.call else {
        return Err(format!("is no NCCL, as it does not export {name}"));
    };
    let mut code = 0;
    // SAFETY: room for one number.
    let status = Status(unsafe { tell(&mut code) });
    if !status.is_success() {
        return Err(format!("{name} answers {status} ({})", status.0));
    }
    let version = Version::from_code(u32::try_from(code).unwrap_or_default());
    if version < Version::OLDEST {
        return Err(format!("is NCCL {version}, and {} is the oldest that will do", Version::OLDEST));
    }
    let path = object.path_of(name);
    object.keep();
    Ok((functions, version, path))
}

/// What a library of this version does wrong that groups cannot make up for.
fn flaw(version: Version) -> Option<&'static str> {
    let is_old = version < Version::new(2, 19, 1);
    is_old.then_some("an abort beside a call may hang before 2.19.1, so that communicators of groups that fail may have to be abandoned")
}

const NCCL: Wanted = Wanted { what: "NCCL", names: &["libnccl.so.2", "libnccl.so"], packages: &["nvidia/nccl/lib"] };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_whose_aborts_may_hang_are_told() {
        let is_told = |code| flaw(Version::from_code(code)).is_some();
        assert!(is_told(21_801) && is_told(21_806) && !is_told(21_901) && !is_told(22_809));
    }
}
