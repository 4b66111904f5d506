//! What is there: the CUDA driver, NCCL, the run-time compiler and the cards, or what was tried where one is not.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use phalanx_nccl::api::{Cuda, Device, Nccl, Version};
use phalanx_nccl::library::{CudaDriver, NcclLibrary, Nvrtc, Search};

use super::Places;

/// All that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) libraries: Vec<Library>,
    pub(super) cards: Vec<Card>,
    nccl: Option<Version>,
}

/// A library: its version and file, or why there is none.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) name: &'static str,
    pub(super) found: Result<(String, String), String>,
    /// What it lacks of what is known.
    pub(super) missing: Vec<String>,
}

/// A card, or why it does not answer.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) name: String,
    pub(super) capability: String,
    pub(super) bus: String,
    pub(super) bytes: u64,
}

impl Found {
    /// NCCL's version, where there is one.
    pub(super) fn version(&self) -> Option<Version> {
        self.nccl
    }
}

impl Places {
    /// Where the driver and the compiler are looked for.
    pub(super) fn search(&self) -> Search {
        self.python.iter().fold(Search::new(), |search, prefix| search.python(prefix))
    }

    /// Where NCCL is.
    pub(super) fn of_nccl(&self) -> Search {
        self.nccl.iter().fold(self.search(), |search, path| search.path(path))
    }

    /// The same, for the command line of a rank.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let pair = |flag: &str, path: &PathBuf| [OsString::from(flag), path.into()];
        let nccl = self.nccl.iter().flat_map(|path| pair("--nccl", path));
        nccl.chain(self.python.iter().flat_map(|path| pair("--python", path))).collect()
    }
}

pub(super) fn look(places: &Places) -> Found {
    let driver = CudaDriver::open(&places.search()).map(Arc::new).map_err(|error| error.to_string());
    let nccl = NcclLibrary::open(&places.of_nccl(), driver.as_ref().ok().cloned()).map_err(|error| error.to_string());
    let nvrtc = Nvrtc::open(&places.search()).map_err(|error| error.to_string());
    let version = nccl.as_ref().ok().and_then(|nccl| nccl.version().ok());
    let missing = nccl.iter().flat_map(NcclLibrary::missing).map(|absent| absent.function.to_owned()).collect();
    let libraries = vec![
        Library {
            name: "CUDA driver",
            found: driver.as_ref().map(|driver| told(driver)).map_err(Clone::clone),
            missing: vec![],
        },
        Library {
            name: "NCCL",
            found: nccl.as_ref().map(|nccl| (known(version), nccl.path().to_owned())).map_err(Clone::clone),
            missing,
        },
        Library {
            name: "NVRTC",
            found: nvrtc.map(|nvrtc| (format!("{}.{}", nvrtc.version().0, nvrtc.version().1), nvrtc.path().to_owned())),
            missing: vec![],
        },
    ];
    let cards = driver.iter().flat_map(|driver| cards(driver)).collect();
    Found { libraries, cards, nccl: version }
}

fn told(driver: &CudaDriver) -> (String, String) {
    let version = driver.driver_version().map(|code| format!("{}.{}", code / 1000, code % 1000 / 10));
    (version.unwrap_or_else(|code| code.to_string()), driver.path().to_owned())
}

fn known(version: Option<Version>) -> String {
    version.map_or_else(|| "of a version that it does not tell".to_owned(), |version| version.to_string())
}

fn cards(driver: &CudaDriver) -> Vec<Card> {
    let card = |number| match driver.device_info(Device(number)) {
        Ok(info) => {
            let capability = format!("{}.{}", info.capability.0, info.capability.1);
            Card { name: info.name, capability, bus: info.bus, bytes: info.memory }
        }
        Err(code) => Card { name: driver.error_text(code), capability: String::new(), bus: String::new(), bytes: 0 },
    };
    (0..driver.device_count().unwrap_or_default()).map(card).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn paths_that_are_no_text_reach_the_ranks_as_they_are() {
        let path = |bytes: &[u8]| Some(PathBuf::from(OsStr::from_bytes(bytes)));
        let places = Places { nccl: path(b"lib\xff"), python: path(b"\xfevenv") };
        let arguments: Vec<Vec<u8>> = places.arguments().iter().map(|argument| argument.as_bytes().to_vec()).collect();
        assert_eq!(arguments, [&b"--nccl"[..], b"lib\xff", b"--python", b"\xfevenv"]);
        assert!(Places { nccl: None, python: None }.arguments().is_empty());
    }
}
