//! The variables of a Kubernetes job with indexed completion.
//!
//! A pod's `HOSTNAME` is the job's name, a dash and the index. Pod 0 is found by such a name below the job's headless
//! service, which has the job's name unless `PHALANX_SERVICE` says otherwise. A pod in its node's network has the node's name,
//! and is told where to meet.

use phalanx_core::Result;

use super::placement::{DEFAULT_PORT, Door, Launcher, Told};
use super::variables::Variables;

pub(super) fn recognise(variables: Variables<'_>) -> Result<Option<Told>> {
    if !variables.is_set(INDEX) {
        return Ok(None);
    }
    let rank: usize = variables.needed(INDEX)?;
    let (name, size) = variables.first(&["WORLD_SIZE", "PHALANX_WORLD_SIZE", "JOB_COMPLETIONS"])?;
    let host = variables.text("HOSTNAME").ok_or_else(|| "neither MASTER_ADDR nor HOSTNAME is set".to_owned());
    let job = host.and_then(|host| job(&host, rank));
    let pod = |job: &String| {
        let service = variables.text("PHALANX_SERVICE").unwrap_or_else(|| job.clone());
        Door::Master { host: format!("{job}-0.{service}"), port: DEFAULT_PORT, agent: false }
    };
    let (door, job) = (job.as_ref().map(pod).map_err(String::clone), job.ok());
    let launcher = Launcher::Kubernetes;
    let (local_rank, local_size, epoch) = (None, None, None);
    Ok(Some(Told { launcher, rank: (INDEX, rank), size: (name, size), local_rank, local_size, job, epoch, door }))
}

/// The job that a pod of this name and index is of, or why that is not known.
fn job(host: &str, rank: usize) -> Result<String, String> {
    // A pod may know itself by its full name.
    let short = host.split('.').next().unwrap_or(host);
    let job = short.strip_suffix(&format!("-{rank}")).filter(|job| !job.is_empty());
    job.map(str::to_owned).ok_or_else(|| format!("HOSTNAME is \"{host}\", must end in \"-{rank}\", the pod's index"))
}

const INDEX: &str = "JOB_COMPLETION_INDEX";
