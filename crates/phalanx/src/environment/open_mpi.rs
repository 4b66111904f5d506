//! The variables of Open MPI's `mpirun`.

use phalanx_core::Result;

use super::placement::{Launcher, Told, one_host};
use super::variables::Variables;

pub(super) fn recognise(variables: Variables<'_>) -> Result<Option<Told>> {
    if !variables.is_set("OMPI_COMM_WORLD_RANK") {
        return Ok(None);
    }
    let size = ("OMPI_COMM_WORLD_SIZE", variables.needed("OMPI_COMM_WORLD_SIZE")?);
    let local_size = variables.whole("OMPI_COMM_WORLD_LOCAL_SIZE")?;
    let job = variables.text("PMIX_NAMESPACE").or_else(|| variables.text("OMPI_MCA_ess_base_jobid"));
    Ok(Some(Told {
        launcher: Launcher::OpenMpi,
        rank: ("OMPI_COMM_WORLD_RANK", variables.needed("OMPI_COMM_WORLD_RANK")?),
        size,
        local_rank: variables.whole("OMPI_COMM_WORLD_LOCAL_RANK")?,
        local_size,
        job: job.map(|job| format!("ompi-{job}")),
        epoch: None,
        door: one_host(size.1, local_size, "mpirun -x MASTER_ADDR=... -x MASTER_PORT=..."),
    }))
}
