//! A sharded model as its owner holds it: its parts by name and number. What happens to it over time is in `runner`.

use std::time::Duration;

use phalanx_core::{Element, Error, Result};

use crate::agreement;
use crate::arena::Arena;
use crate::event::Depth;
use crate::gather::Gathered;
use crate::groups::Groups;
use crate::hooks::GradientHook;
use crate::layout::{Division, Terms, UnitLayout};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::options::{Policy, Reshard};
use crate::reduce;
use crate::spec::{Param, ParamSpec, Part, UnitSpec};
use crate::trace::{Trace, Traced};
use crate::unit::Unit;

/// A model of which each rank holds its part.
///
/// Its owner says what the model comes to, every rank the same in the same order, and gets full parameters lent in between. Once an
/// operation has failed, so does every later call: shards and gradients may still be read.
#[derive(Debug)]
pub struct Sharded {
    pub(crate) groups: Groups,
    pub(crate) policy: Policy,
    pub(crate) units: Vec<Unit>,
    pub(crate) machine: Machine,
    pub(crate) arena: Arena,
    pub(crate) trace: Trace,
    pub(crate) divisor: Option<f64>,
    pub(crate) hook: Option<Box<dyn GradientHook>>,
    pub(crate) failed: Option<Error>,
}

impl Sharded {
    /// Takes this rank's part of a model, all of it zero, in the order in which its forward comes to the units. All ranks call this: what
    /// they say of the model is compared.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for what cannot be sharded, [`Desync`](phalanx_core::ErrorKind::Desync) on all ranks where
    /// they do not say the same, [`Setup`](phalanx_core::ErrorKind::Setup) when memory is out.
    pub fn new(groups: impl Into<Groups>, units: Vec<UnitSpec>, policy: Policy) -> Result<Sharded> {
        let groups = groups.into();
        let reshards = units.iter().map(|unit| unit.reshard.unwrap_or(policy.reshard)).collect::<Vec<_>>();
        let own = plan(&groups, &units, &reshards, &policy);
        let layouts = agreement::reach(&groups, own, || agreement::of_units(&groups, &units, &reshards, &policy))?;
        let mut arena = Arena::new(groups.shard.clone());
        let planned = units.into_iter().zip(layouts);
        let shard = |(spec, layout)| Unit::new(spec, layout, groups.shard.rank(), &mut arena);
        let units = planned.map(shard).collect::<Result<Vec<_>>>()?;
        let depth = Depth { forward: policy.forward_prefetch, backward: policy.backward_prefetch };
        let machine = Machine::new(&reshards, depth, groups.replicate.is_some());
        let trace = Trace::new(policy.trace);
        Ok(Sharded { groups, policy, units, machine, arena, trace, divisor: None, hook: None, failed: None })
    }

    /// The groups it works with.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// How it is sharded.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// How many units there are.
    pub fn unit_count(&self) -> usize {
        self.units.len()
    }

    /// Every parameter, those that are tied or ignored included, in order.
    pub fn params(&self) -> impl Iterator<Item = Param> + '_ {
        let numbered = self.units.iter().enumerate();
        numbered.flat_map(|(unit, held)| (0..held.spec.params.len()).map(move |index| Param { unit, index }))
    }

    /// Those with memory of their own, each once: what a checkpoint holds.
    pub fn owned(&self) -> impl Iterator<Item = Param> + '_ {
        self.params().filter(|param| self.units[param.unit].layout.owners[param.index] == Some(param.index))
    }

    /// Those of them that have a gradient: what an optimizer steps over.
    pub fn trained(&self) -> impl Iterator<Item = Param> + '_ {
        self.params().filter(|param| self.units[param.unit].is_trained(param.index))
    }

    /// A parameter by the names of its unit and its own.
    pub fn param(&self, unit: &str, name: &str) -> Option<Param> {
        let unit = self.units.iter().position(|held| held.spec.name == unit)?;
        let index = self.units[unit].spec.params.iter().position(|param| param.name == name)?;
        Some(Param { unit, index })
    }

    /// What a parameter is.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for one that there is not.
    pub fn spec(&self, param: Param) -> Result<&ParamSpec> {
        let params = &self.unit("spec", param.unit)?.spec.params;
        let expected = || format!("must be below {}, the parameters of the unit", params.len());
        params.get(param.index).ok_or_else(|| Error::usage("spec", "param", param.index, expected()))
    }

    /// Which rows of a parameter which rank holds.
    ///
    /// # Errors
    ///
    /// As [`spec`](Sharded::spec).
    pub fn division(&self, param: Param) -> Result<Division> {
        self.spec(param)?;
        Ok(self.units[param.unit].layout.divisions[param.index])
    }

    /// What this rank holds of a parameter, as checkpoints and optimizers call it.
    ///
    /// # Errors
    ///
    /// As [`spec`](Sharded::spec).
    pub fn part(&self, param: Param) -> Result<Part> {
        let spec = self.spec(param)?;
        Ok(Part {
            name: spec.name.clone(),
            shape: spec.shape.clone(),
            elements: self.division(param)?.elements(self.groups.shard.rank()),
            is_first: self.groups.replicate.as_ref().is_none_or(|replicas| replicas.rank() == 0),
            is_trained: spec.is_trainable(),
        })
    }

    /// This rank's rows of a parameter.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for one that there is not or that is ignored, and where it is of another type.
    pub fn shard<T: Element>(&self, param: Param) -> Result<&[T]> {
        let unit = self.unit("shard", param.unit)?;
        Ok(crate::cast::slice(unit.shard(unit.owner_of::<T>("shard", param.index)?)))
    }

    /// This rank's rows of a parameter, to write. What was gathered of its unit is gathered again.
    ///
    /// # Errors
    ///
    /// As [`shard`](Sharded::shard), and where that which is gathered cannot be freed.
    pub fn shard_mut<T: Element>(&mut self, param: Param) -> Result<&mut [T]> {
        let owner = self.changed::<T>("shard_mut", param)?;
        Ok(crate::cast::slice_mut(self.units[param.unit].shard_mut(owner)))
    }

    /// The gradient of this rank's rows, once one was reduced.
    ///
    /// # Errors
    ///
    /// As [`shard`](Sharded::shard).
    pub fn gradient<T: Element>(&self, param: Param) -> Result<Option<&[T]>> {
        let unit = self.unit("gradient", param.unit)?;
        let owner = unit.owner_of::<T>("gradient", param.index)?;
        Ok(unit.gradient(owner).map(crate::cast::slice))
    }

    /// The same to write.
    ///
    /// # Errors
    ///
    /// As [`shard`](Sharded::shard).
    pub fn gradient_mut<T: Element>(&mut self, param: Param) -> Result<Option<&mut [T]>> {
        let owner = self.unit("gradient_mut", param.unit)?.owner_of::<T>("gradient_mut", param.index)?;
        Ok(self.units[param.unit].gradient_mut(owner).map(crate::cast::slice_mut))
    }

    /// This rank's rows to write and their gradient to read: a step of an optimizer.
    ///
    /// # Errors
    ///
    /// As [`shard_mut`](Sharded::shard_mut).
    pub fn update<T: Element>(&mut self, param: Param) -> Result<(&mut [T], Option<&[T]>)> {
        let owner = self.changed::<T>("update", param)?;
        Ok(self.units[param.unit].update(owner))
    }

    /// Frees all gradients of shards, and forgets which parameters had one. Their memory is free for what forward keeps. Gradients that
    /// wait on this rank to be reduced, or are on their way, are dropped with them: the next backward begins from nothing.
    pub fn zero_gradients(&mut self) {
        self.units.iter_mut().for_each(|unit| reduce::forget(unit, &mut self.arena));
    }

    /// Trained parameters for which this rank's backward brought no gradient since gradients were last freed: cut off by mistake, or on
    /// a branch that was not taken.
    pub fn unused(&self) -> Vec<Param> {
        let numbered = self.units.iter().enumerate();
        numbered.flat_map(|(unit, held)| held.unused().map(move |index| Param { unit, index })).collect()
    }

    /// The full parameters of a unit, if they are there.
    pub fn gathered(&self, unit: usize) -> Option<Gathered<'_>> {
        self.units.get(unit).and_then(Gathered::of)
    }

    /// Whether the full parameters of a unit are there, or a copy of the owner's stands for them.
    pub fn holds(&self, unit: usize) -> bool {
        self.machine.holds(unit)
    }

    /// The bytes that the engine holds on this rank.
    pub fn memory(&self) -> Memory {
        self.arena.memory()
    }

    /// How long this rank has waited for others, all in all.
    pub fn waited(&self) -> Duration {
        self.trace.waited()
    }

    /// What happened since the trace was last taken; nothing unless the [policy](Policy::trace) asks for it.
    pub fn take_trace(&mut self) -> Vec<Traced> {
        self.trace.take()
    }

    pub(crate) fn unit(&self, call: &'static str, unit: usize) -> Result<&Unit> {
        let expected = || format!("must be below {}, the number of units", self.units.len());
        self.units.get(unit).ok_or_else(|| Error::usage(call, "unit", unit, expected()))
    }
}

/// How each unit is divided, where all of it can be.
pub(crate) fn plan(
    groups: &Groups,
    units: &[UnitSpec],
    reshards: &[Reshard],
    policy: &Policy,
) -> Result<Vec<UnitLayout>> {
    groups.check()?;
    check_names(units)?;
    if groups.smaller.is_none() && reshards.contains(&Reshard::Smaller) {
        let expected = "must have a group among which units are divided after forward";
        return Err(Error::usage("Sharded::new", "groups", "one without", expected));
    }
    let layout = |(spec, reshard): (&UnitSpec, &Reshard)| {
        let smaller = groups.smaller.as_ref().filter(|_| *reshard == Reshard::Smaller);
        let terms = Terms {
            world: groups.shard.size(),
            smaller: smaller.map(phalanx_core::Group::size),
            compute: spec.compute.or(policy.compute),
            reduce: spec.reduce.or(policy.reduce),
        };
        UnitLayout::new(spec, terms)
    };
    units.iter().zip(reshards).map(layout).collect()
}

/// That units can be told apart.
fn check_names(units: &[UnitSpec]) -> Result<()> {
    for (index, unit) in units.iter().enumerate() {
        if units[..index].iter().any(|other| other.name == unit.name) {
            let value = format!("{:?} twice", unit.name);
            return Err(Error::usage("Sharded::new", "units", value, "must have names of their own"));
        }
    }
    Ok(())
}
