//! How a group is formed and what it looks for, as Python's options say it and as the environment does. What it is used for is not known here.

use phalanx::schedule::Profile;
use phalanx::{Error, GroupOptions, Protection, Result, Transport, settings};
use pyo3::{PyResult, Python, pyclass, pymethods};

use crate::failure::raised;

/// What is said of a group before it is formed.
#[pyclass(frozen, module = "phalanx._native")]
pub(crate) struct Manner {
    pub(crate) transport: Transport,
    pub(crate) protection: Protection,
    /// What `PHALANX_PROFILE` names.
    pub(crate) profile: Option<Profile>,
    check_nan: bool,
    compare_call_sites: bool,
    remembered: Option<usize>,
}

#[pymethods]
impl Manner {
    #[new]
    #[pyo3(signature = (transport, protection, check_nan, compare_call_sites, remembered))]
    fn new(
        py: Python<'_>,
        transport: &str,
        protection: &str,
        check_nan: bool,
        compare_call_sites: bool,
        remembered: Option<usize>,
    ) -> PyResult<Manner> {
        let read = || -> Result<Manner> {
            let (transport, protection) = (way(transport)?, shield(protection)?);
            let profile = settings::profile()?;
            Ok(Manner { transport, protection, profile, check_nan, compare_call_sites, remembered })
        };
        py.detach(read).map_err(|error| raised(py, &error, 0))
    }
}

impl Manner {
    /// How the group behaves.
    pub(crate) fn options(&self) -> GroupOptions {
        let options = GroupOptions::default().check_nan(self.check_nan).compare_call_sites(self.compare_call_sites);
        self.remembered.into_iter().fold(options, GroupOptions::remembered)
    }
}

fn way(transport: &str) -> Result<Transport> {
    match transport {
        "automatic" => Ok(Transport::Automatic),
        "shared_memory" => Ok(Transport::SharedMemory),
        "tcp" => Ok(Transport::Tcp),
        other => Err(Error::usage("join", "transport", other, "must be automatic, shared_memory or tcp")),
    }
}

fn shield(protection: &str) -> Result<Protection> {
    match protection {
        "encrypted" => Ok(Protection::Encrypted),
        "authenticated" => Ok(Protection::Authenticated),
        "handshake" => Ok(Protection::Handshake),
        other => Err(Error::usage("join", "protection", other, "must be encrypted, authenticated or handshake")),
    }
}
