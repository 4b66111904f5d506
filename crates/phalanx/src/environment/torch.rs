//! The variables of `phalanx run` and of torchrun, or set by hand in the same way.

use phalanx_core::Result;

use super::placement::{Launcher, Told, missing};
use super::variables::Variables;

pub(super) fn recognise(variables: Variables<'_>) -> Result<Option<Told>> {
    if !variables.is_set("RANK") {
        return Ok(None);
    }
    Ok(Some(Told {
        launcher: launcher(variables),
        rank: ("RANK", variables.needed("RANK")?),
        size: ("WORLD_SIZE", variables.needed("WORLD_SIZE")?),
        local_rank: variables.whole("LOCAL_RANK")?,
        local_size: variables.whole("LOCAL_WORLD_SIZE")?,
        job: variables.text("TORCHELASTIC_RUN_ID"),
        epoch: epoch(variables)?,
        // One who sets variables by hand says where to meet, too: nothing else here tells two jobs apart.
        door: Err(missing("MASTER_ADDR")),
    }))
}

/// How often the launcher has started the job. torchrun's agents count on each host what failed there, so that ranks of one start differ; they
/// agree on the agents' store.
fn epoch(variables: Variables<'_>) -> Result<Option<u32>> {
    let told = variables.whole("TORCHELASTIC_RESTART_COUNT")?;
    Ok(told.filter(|_| launcher(variables) != Launcher::Torchrun))
}

fn launcher(variables: Variables<'_>) -> Launcher {
    if variables.is_set("PHALANX_STORE") {
        Launcher::Phalanx
    } else if variables.is_set("TORCHELASTIC_RUN_ID") {
        Launcher::Torchrun
    } else {
        Launcher::Variables
    }
}
