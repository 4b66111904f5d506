//! The variables of `srun`.
//!
//! `SLURM_LAUNCH_NODE_IPADDR` is not looked at: it is where `srun` was called, which may be a login node.

use phalanx_core::Result;

use super::hostlist::expand;
use super::placement::{Door, Launcher, Told, port_of};
use super::variables::{Variables, wrong};

pub(super) fn recognise(variables: Variables<'_>) -> Result<Option<Told>> {
    if !variables.is_set("SLURM_PROCID") {
        return Ok(None);
    }
    let size = variables.first(SIZES)?;
    let hosts = hosts(variables)?;
    let job = job(variables);
    let on_one_host = size.1 == 1 || hosts.as_ref().is_some_and(|hosts| hosts.len() == 1);
    let first = hosts.as_ref().and_then(|hosts| hosts.first().cloned());
    let door = match (on_one_host, first) {
        (true, _) => Ok(Door::Lobby),
        (false, Some(host)) => Ok(Door::Master { host, port: port_of(&job), agent: false }),
        (false, None) => Err("neither SLURM_STEP_NODELIST nor MASTER_ADDR is set".to_owned()),
    };
    Ok(Some(Told {
        launcher: Launcher::Slurm,
        rank: ("SLURM_PROCID", variables.needed("SLURM_PROCID")?),
        size,
        local_rank: variables.whole("SLURM_LOCALID")?,
        local_size: on_one_host.then_some(size.1),
        job: Some(job),
        epoch: variables.whole("SLURM_RESTART_COUNT")?,
        door,
    }))
}

/// Whether Slurm itself counts as PMI does: then its step started the ranks, and not a launcher within it.
pub(super) fn started(variables: Variables<'_>, rank: usize, size: usize) -> bool {
    let same = |names: &[&'static str], number: usize| {
        names.iter().any(|name| variables.text(name).is_some_and(|text| text.parse() == Ok(number)))
    };
    same(&["SLURM_PROCID"], rank) && same(&SIZES[..1], size)
}

/// The job and its step, which `srun` numbers anew each time it is called.
fn job(variables: Variables<'_>) -> String {
    let part = |name: &str| variables.text(name).unwrap_or_else(|| "0".to_owned());
    format!("slurm-{}.{}", part("SLURM_JOB_ID"), part("SLURM_STEP_ID"))
}

fn hosts(variables: Variables<'_>) -> Result<Option<Vec<String>>> {
    let Some(name) = NODE_LISTS.iter().find(|name| variables.text(name).is_some()) else { return Ok(None) };
    let list = variables.text(name).unwrap_or_default();
    expand(&list).map(Some).ok_or_else(|| wrong(name, list, "must be a list of hosts such as n[1-3],m2"))
}

/// The step's own number first: a job may run steps of fewer tasks.
const SIZES: &[&str] = &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"];
const NODE_LISTS: [&str; 3] = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
