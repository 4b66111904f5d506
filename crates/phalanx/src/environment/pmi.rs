//! The variables of launchers that speak PMI: `mpiexec` of MPICH, Intel MPI, MVAPICH.

use phalanx_core::Result;

use super::placement::{Launcher, Told, one_host};
use super::slurm;
use super::variables::Variables;

pub(super) fn recognise(variables: Variables<'_>) -> Result<Option<Told>> {
    if !variables.is_set("PMI_RANK") {
        return Ok(None);
    }
    let (rank, size): (usize, usize) = (variables.needed("PMI_RANK")?, variables.needed("PMI_SIZE")?);
    // `srun --mpi=pmi2` sets these as well, and its own variables say more.
    if slurm::started(variables, rank, size) {
        return Ok(None);
    }
    let local_size = variables.whole("MPI_LOCALNRANKS")?;
    Ok(Some(Told {
        launcher: Launcher::Pmi,
        rank: ("PMI_RANK", rank),
        size: ("PMI_SIZE", size),
        local_rank: variables.whole("MPI_LOCALRANKID")?,
        local_size,
        job: variables.text("PMI_JOBID").map(|job| format!("pmi-{job}")),
        epoch: None,
        door: one_host(size, local_size, "mpiexec -genv MASTER_ADDR ... -genv MASTER_PORT ..."),
    }))
}
