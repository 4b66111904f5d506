//! The keys of doors, and what is told of them where anybody may read it: of one that is derived from the job key nothing by which it could be
//! found, of one that was made for its door the key itself, because those who are to come in have nothing else in common.

use phalanx::{Error, JobKey, Result, settings};
use pyo3::{PyResult, Python, pyclass, pymethods};

use crate::failure::raised;

/// The job key of this process, where its environment leads to one.
#[pyclass(frozen, name = "JobKey", module = "phalanx._native")]
pub(crate) struct OwnKey(Option<(&'static str, JobKey)>);

/// The key of one door.
#[pyclass(frozen, module = "phalanx._native")]
pub(crate) struct DoorKey {
    key: JobKey,
    told: String,
}

#[pymethods]
impl OwnKey {
    #[new]
    fn new(py: Python<'_>) -> PyResult<OwnKey> {
        py.detach(settings::job_key).map(OwnKey).map_err(|error| raised(py, &error, 0))
    }

    /// The variable that leads to it, where there is one.
    #[getter]
    fn variable(&self) -> Option<&'static str> {
        self.0.as_ref().map(|(variable, _)| *variable)
    }

    /// A new key for a door that this process opens, for the meeting that is called `place` and no other one is.
    fn mint(&self, py: Python<'_>, place: &str) -> PyResult<DoorKey> {
        self.minted(place).map_err(|error| raised(py, &error, 0))
    }

    /// The key of the door of which this was `told`, for the meeting that this process knows by the name `place`.
    fn recall(&self, py: Python<'_>, told: &str, place: &str) -> PyResult<DoorKey> {
        self.recalled(told, place).map_err(|error| raised(py, &error, 0))
    }
}

#[pymethods]
impl DoorKey {
    /// What those are told who are to come in.
    #[getter]
    fn told(&self) -> &str {
        &self.told
    }
}

impl DoorKey {
    pub(crate) fn key(&self) -> &JobKey {
        &self.key
    }
}

impl OwnKey {
    fn minted(&self, place: &str) -> Result<DoorKey> {
        let minted = JobKey::mint().map_err(|error| Error::setup(KEY_OF_DOOR, error))?;
        let digits = minted.to_hex();
        match &self.0 {
            // What was minted only makes this door's key another one than every other's.
            Some((variable, own)) => {
                let key = derived((*variable, own), &digits, place)?;
                Ok(DoorKey { key, told: format!("{NONCE}{}", *digits) })
            }
            None => Ok(DoorKey { key: minted, told: format!("{CLEAR}{}", *digits) }),
        }
    }

    /// Whoever may write where this was told may have told it: a process that has a job key does not do without.
    fn recalled(&self, told: &str, place: &str) -> Result<DoorKey> {
        let key = match (&self.0, told.strip_prefix(NONCE), told.strip_prefix(CLEAR)) {
            (Some((variable, own)), Some(nonce), _) => derived((*variable, own), nonce, place)?,
            (Some((variable, _)), None, Some(_)) => {
                let why = "names a job key, and the first rank of the group has none: nothing is joined without it";
                return Err(Error::setup(*variable, why));
            }
            (None, Some(_), _) => {
                let why = "the first rank of the group has one, and this process has none: PHALANX_KEY_FD, PHALANX_KEY_FILE and PHALANX_KEY are not set";
                return Err(Error::setup("job key", why));
            }
            (None, None, Some(digits)) => JobKey::from_hex(digits).map_err(|error| Error::setup(KEY_OF_DOOR, error))?,
            // What was told is not shown: it may be a key all the same.
            (_, None, None) => return Err(Error::setup(KEY_OF_DOOR, "neither a key nor a nonce was told")),
        };
        Ok(DoorKey { key, told: told.to_owned() })
    }
}

/// The key of a door, from the job key. The meeting's name is in it so that nobody is led from one group of the job to the door of another.
fn derived((variable, own): (&'static str, &JobKey), nonce: &str, place: &str) -> Result<JobKey> {
    // The length tells where the one ends and the other begins.
    let context = [&(place.len() as u64).to_le_bytes()[..], place.as_bytes(), nonce.as_bytes()].concat();
    own.subkey(LABEL, &context).map_err(|error| Error::setup(variable, error))
}

const LABEL: &str = "phalanx door";
const KEY_OF_DOOR: &str = "key of the door";
/// Before what a key is derived from together with the job key.
const NONCE: &str = "nonce:";
/// Before a key.
const CLEAR: &str = "key:";
