//! How a process is seen from outside whose groups are PyTorch's.

use std::sync::Arc;

use phalanx::{Alarm, Group, JobName, Placement, Transport, World};
use pyo3::{Py, PyResult, Python, pyclass, pymethods};

use crate::failure::raised;

/// What `phalanx top` and `phalanx trace collect` find of this process.
#[pyclass(frozen, module = "phalanx._native")]
pub(crate) struct Presence(phalanx::Presence);

/// Where a group is shown, and which of the job's ranks are its ranks.
pub(crate) struct Shown {
    presence: Py<Presence>,
    members: Vec<usize>,
}

#[pymethods]
impl Presence {
    #[new]
    fn new(py: Python<'_>, job: &str, rank: usize, size: usize, local_rank: usize) -> PyResult<Presence> {
        let job = named(job);
        let opened = py.detach(|| phalanx::Presence::open(&job, (rank, size), local_rank));
        opened.map(Presence).map_err(|error| raised(py, &error, 0))
    }
}

impl Shown {
    pub(crate) fn new((presence, members): (Py<Presence>, Vec<usize>)) -> Shown {
        Shown { presence, members }
    }

    /// The job's ranks that are the group's.
    pub(crate) fn members(&self) -> &[usize] {
        &self.members
    }

    /// Who is told of the group's failures.
    pub(crate) fn alarm(&self) -> Arc<dyn Alarm> {
        self.presence.get().0.alarm()
    }

    pub(crate) fn show(self, world: &World, group: &Group, transport: Transport) {
        self.presence.get().0.met(world);
        self.presence.get().0.show(group, self.members, transport);
    }
}

/// What a job of torchrun's is called here: as it is for ranks that join a world, whatever letters it has. Where they meet has to be said too,
/// and does not matter.
fn named(job: &str) -> JobName {
    let torchrun = [("RANK", "0"), ("WORLD_SIZE", "1"), ("PHALANX_STORE", "none"), ("TORCHELASTIC_RUN_ID", job)];
    let lookup = |name: &str| torchrun.iter().find(|(set, _)| *set == name).map(|(_, text)| (*text).to_owned());
    let placed = Placement::from_lookup(&lookup).ok();
    placed.and_then(|placed| JobName::new(placed.job()?).ok()).unwrap_or_default()
}
