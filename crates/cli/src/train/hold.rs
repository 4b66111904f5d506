//! The groups of a world and the model in their hands, in the mode that was asked for.

use candle_core::Device;
use phalanx::{Group, World};
use phalanx_candle::gpt::{Gpt, GptOptions, initial};
use phalanx_candle::{Ddp, FullyShard, Groups, Model, Policy, Single};
use phalanx_comm::Wiring;

use super::options::{Mode, Options};
use crate::failure::Failure;

/// A model with initial values, held by the ranks of `all`.
pub(super) fn model(options: &Options, sizes: GptOptions, world: &World, all: &Group) -> Result<Model, Failure> {
    let units = Gpt::new(sizes, options.dtype(), &Device::Cpu).map_err(stopped)?.into_units();
    let model = match options.mode {
        Mode::Single => Model::new(units, Single::new()),
        Mode::Ddp => Model::new(units, Ddp::new(all.clone())),
        Mode::Fsdp => Model::new(units, FullyShard::new(all.clone(), Policy::default())),
        Mode::Hsdp => Model::new(units, FullyShard::new(replicated(world)?, Policy::default())),
    };
    let mut model = model.map_err(stopped)?.recompute(options.recompute);
    let seed = options.seed;
    model.load(|name, shape| Ok(initial(seed, name, shape, sizes.layers))).map_err(stopped)?;
    Ok(model)
}

/// Two replicas of half of the ranks each.
fn replicated(world: &World) -> Result<Groups, Failure> {
    let mesh = world.mesh(&[("replicate", 2), ("shard", world.size() / 2)], &Wiring::default())?;
    let group = |dimension: &str| {
        let absent = || Failure::Stopped(format!("the mesh has no dimension {dimension}"));
        mesh.group(dimension).cloned().ok_or_else(absent)
    };
    Ok(Groups::new(group("shard")?).replicate(group("replicate")?))
}

/// What a lower layer has to say, as a failure of the command.
pub(super) fn stopped(error: impl std::fmt::Display) -> Failure {
    Failure::Stopped(error.to_string())
}
