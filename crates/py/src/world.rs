//! Worlds as Python sees them, for programs without PyTorch: joined as their launcher says, and divided into groups.

use std::time::Duration;

use phalanx::{Error, GroupOptions, Joining, Result, Wiring, World as Ranks};
use pyo3::{PyResult, Python, pyclass, pyfunction, pymethods};

use crate::failure::raised;
use crate::group::Group;
use crate::held::Held;
use crate::manner::Manner;
use crate::store::Store;

/// All ranks of a job, and this process's place among them.
#[pyclass(frozen, module = "phalanx._native")]
pub(crate) struct World {
    /// Absent once it was left.
    ranks: Held<Ranks>,
    #[pyo3(get)]
    rank: usize,
    #[pyo3(get)]
    size: usize,
    #[pyo3(get)]
    local_rank: usize,
    #[pyo3(get)]
    local_size: usize,
}

/// Joins the world that `url` names, or that the launcher's environment does.
#[pyfunction]
#[pyo3(signature = (url=None, timeout=None))]
pub(crate) fn init(py: Python<'_>, url: Option<&str>, timeout: Option<f64>) -> PyResult<World> {
    let join = || {
        let joining = url.map_or_else(Joining::environment, Joining::url)?;
        timeout.map(seconds).into_iter().fold(joining, Joining::timeout).join()
    };
    let ranks = py.detach(join).map_err(|error| raised(py, &error, 0))?;
    let (rank, size) = (ranks.rank(), ranks.size());
    let (local_rank, local_size) = (ranks.local_rank(), ranks.local_size());
    Ok(World { ranks: Held::new(ranks), rank, size, local_rank, local_size })
}

#[pymethods]
impl World {
    /// The group of all ranks. Every rank calls this, and as often as the others. `timeout` bounds the wait for them, and operations
    /// that say no time of their own. Of `manner` the group takes what it looks for; how it is wired and its profile are the world's.
    #[pyo3(signature = (name=None, timeout=None, manner=None))]
    fn group(
        &self,
        py: Python<'_>,
        name: Option<String>,
        timeout: Option<f64>,
        manner: Option<&Manner>,
    ) -> PyResult<Group> {
        let options = manner.map_or_else(GroupOptions::default, Manner::options);
        let options = name.into_iter().fold(options, GroupOptions::name);
        let timeout = timeout.map(seconds);
        let options = timeout.into_iter().fold(options, GroupOptions::timeout);
        let wiring = timeout.into_iter().fold(Wiring::default().options(options), Wiring::timeout);
        self.of_ranks(py, |ranks| ranks.wire(&wiring)).map(Group::new)
    }

    /// The world's store, which ranks in any language share.
    fn store(&self, py: Python<'_>) -> PyResult<Store> {
        self.of_ranks(py, |ranks| Ok(Store(ranks.store())))
    }

    /// Leaves the world. Where its store lives in this process, waits until all have left, at most this long.
    fn leave(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let left = py.detach(|| self.ranks.take().map_or(Ok(()), |ranks| ranks.leave(seconds(timeout))));
        left.map_err(|error| raised(py, &error, 0))
    }
}

impl World {
    /// Several threads ask at once: what one waits for may be what another one of another rank does first.
    fn of_ranks<T: Send>(&self, py: Python<'_>, ask: impl FnOnce(&Ranks) -> Result<T> + Send) -> PyResult<T> {
        let asked = py.detach(|| {
            let ranks = self.ranks.look();
            ranks.as_ref().ok_or_else(|| Error::aborted(format!("rank {} has left the world", self.rank))).and_then(ask)
        });
        asked.map_err(|error| raised(py, &error, 0))
    }
}

/// What Python says in seconds; the package's Python has refused what is no time, and a century stands for more.
pub(crate) fn seconds(timeout: f64) -> Duration {
    Duration::try_from_secs_f64(timeout.max(0.0)).unwrap_or(FOREVER)
}

/// A century, which can still be added to a moment.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
