//! A sharded model on a device as its owner holds it: its parts by name and number, in and out of the host. What happens to it over time is
//! in `runner`.

use std::fmt;
use std::time::Duration;

use phalanx_core::{Counts, DType, Element, Error, Op, Result};
use phalanx_nccl::api::{Cuda, Nccl, Process, Stream};
use phalanx_nccl::group::Stack;

use super::clip::Norms;
use super::deck::Deck;
use super::edge::Edge;
use super::groups::{DeviceGroups, Means};
use super::pool::Pool;
use super::reduce;
use super::store::Update;
use super::unit::Unit;
use crate::agreement;
use crate::cast::convert;
use crate::event::{Depth, Event, Settings};
use crate::factors;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::options::Policy;
use crate::sharded::plan;
use crate::spec::{Param, ParamSpec, Role, UnitSpec};
use crate::trace::{Trace, Traced};

/// A model of which each rank holds its part in memory of a device, or of the host where the policy says so.
///
/// It does what [`Sharded`](crate::Sharded) does, and everything in the order of streams: the program's own, on which it computes and
/// with which it says what the model has come to, and others beside it. The host waits for nothing but what it reads itself. So
/// errors of the groups come to a later call than the one that began what failed.
pub struct DeviceSharded<N: Nccl, C: Cuda, P: Process> {
    pub(super) means: Means<N, C, P>,
    pub(super) units: Vec<Unit<N, C, P>>,
    pub(super) machine: Machine,
    pub(super) trace: Trace,
    pub(super) norms: Norms<C>,
    pub(super) failed: Option<Error>,
}

impl<N: Nccl, C: Cuda, P: Process> DeviceSharded<N, C, P> {
    /// Takes this rank's part of a model, all of it zero. The model is computed on `compute`, a stream of the stack's device. All ranks
    /// call this: what they say of the model is compared.
    ///
    /// # Errors
    ///
    /// Those of [`Sharded::new`](crate::Sharded::new), and [`Usage`](phalanx_core::ErrorKind::Usage) for types and forms that devices have
    /// no kernel for; [`Device`](phalanx_core::ErrorKind::Device) when memory is out.
    pub fn new(
        stack: Stack<N, C, P>,
        compute: Stream,
        groups: DeviceGroups<N, C, P>,
        units: Vec<UnitSpec>,
        policy: Policy,
    ) -> Result<DeviceSharded<N, C, P>> {
        let host = groups.of_host();
        let reshards = units.iter().map(|unit| unit.reshard.unwrap_or(policy.reshard)).collect::<Vec<_>>();
        let checked = groups.check().and_then(|()| check(&units, &policy));
        let own = checked.and_then(|()| plan(&host, &units, &reshards, &policy));
        let layouts = agreement::reach(&host, own, || agreement::of_units(&host, &units, &reshards, &policy))?;
        let deck = Deck::new(stack, compute, groups.shard.group().timeout())?;
        let mut means = Means { deck, pool: Pool::new(), groups, divisor: None, hook: None };
        let planned = units.into_iter().zip(layouts);
        let held = planned.map(|(spec, layout)| Unit::new(spec, layout, &mut means, policy.offload));
        let units = held.collect::<Result<Vec<_>>>()?;
        // Tables are read on other streams than the one they came by.
        means.deck.settle()?;
        let depth = Depth { forward: policy.forward_prefetch, backward: policy.backward_prefetch };
        let machine = Machine::new(&reshards, depth, host.replicas().is_some());
        let trace = Trace::new(policy.trace);
        Ok(DeviceSharded { means, units, machine, trace, norms: Norms::new(), failed: None })
    }

    /// How many units there are.
    pub fn unit_count(&self) -> usize {
        self.units.len()
    }

    /// Those with memory of their own, each once: what a checkpoint holds.
    pub fn owned(&self) -> impl Iterator<Item = Param> + '_ {
        let numbered = self.units.iter().enumerate();
        let params =
            numbered.flat_map(|(unit, held)| (0..held.spec.params.len()).map(move |index| Param { unit, index }));
        params.filter(|param| self.units[param.unit].layout.owners[param.index] == Some(param.index))
    }

    /// Those of them that have a gradient: what an optimizer steps over.
    pub fn trained(&self) -> impl Iterator<Item = Param> + '_ {
        self.owned().filter(|param| self.units[param.unit].is_trained(param.index))
    }

    /// What a parameter is.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for one that there is not, or that is ignored.
    pub fn spec(&self, param: Param) -> Result<&ParamSpec> {
        let unit = self.unit("spec", param.unit)?;
        unit.layout.owner(&unit.spec, "spec", param.index).map(|(spec, _)| spec)
    }

    /// What may be changed between micro-batches. Nothing is [copied](Settings::copies) by the owner of a model on a device: full
    /// parameters lie in one piece each.
    pub fn settings_mut(&mut self) -> &mut Settings {
        self.machine.settings_mut()
    }

    /// Whether gradients are reduced as they come: see [`Sharded::set_sync`](crate::Sharded::set_sync).
    pub fn set_sync(&mut self, syncs: bool) {
        self.units.iter_mut().for_each(|unit| unit.syncs = syncs);
    }

    /// What the sum of all ranks' gradients is divided by, in place of the number of ranks.
    ///
    /// # Errors
    ///
    /// Those of [`Sharded::set_gradient_divisor`](crate::Sharded::set_gradient_divisor).
    pub fn set_gradient_divisor(&mut self, divisor: Option<f64>) -> Result<()> {
        factors::check(divisor)?;
        self.units.iter().try_for_each(|unit| unit.check_still("set_gradient_divisor"))?;
        self.means.divisor = divisor;
        Ok(())
    }

    /// Has these units gathered when `unit` begins its forward, in place of those that followed it last time. One that is not used next stays
    /// as long as it is among those of each unit that is used before it.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a unit that there is not.
    pub fn prefetch_in_forward(&mut self, unit: usize, targets: &[usize]) -> Result<()> {
        self.machine.prefetch_in_forward(unit, targets)
    }

    /// The same in backward, in place of those that came before it in forward.
    ///
    /// # Errors
    ///
    /// As [`prefetch_in_forward`](DeviceSharded::prefetch_in_forward).
    pub fn prefetch_in_backward(&mut self, unit: usize, targets: &[usize]) -> Result<()> {
        self.machine.prefetch_in_backward(unit, targets)
    }

    /// A shard and its gradient on the device, for what an optimizer puts on the program's stream before it comes to the model again.
    /// What was gathered of the unit is gathered again.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a parameter that there is not or that is ignored, and where shards live on the host.
    pub fn update(&mut self, param: Param) -> Result<Update<C>> {
        let (owner, _) = self.stored("update", param)?;
        self.happen(Event::Changed(param.unit), &[])?;
        let unit = &mut self.units[param.unit];
        unit.is_written = true;
        let expected = "must not be offloaded: update_on_host is for what lives there";
        let value = || format!("one of unit {:?}", unit.spec.name);
        unit.store.on_device(owner)?.ok_or_else(|| Error::usage("update", "param", value(), expected))
    }

    /// The same on the host, wherever they live: the host waits for the gradient, and the shard is what `change` leaves.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a parameter that there is not or that is ignored, and where it is of another type; those
    /// of the reductions that are awaited.
    pub fn update_on_host<T: Element>(
        &mut self,
        param: Param,
        change: impl FnOnce(&mut [T], Option<&[T]>),
    ) -> Result<()> {
        let (owner, dtype) = self.stored("update_on_host", param)?;
        if dtype != T::DTYPE {
            return Err(Error::usage("update_on_host", "dtype", T::DTYPE, format!("must be {dtype}")));
        }
        self.happen(Event::Changed(param.unit), &[])?;
        self.change_on_host((param.unit, owner), change).inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn change_on_host<T: Element>(
        &mut self,
        (unit, owner): (usize, usize),
        change: impl FnOnce(&mut [T], Option<&[T]>),
    ) -> Result<()> {
        let (unit, deck) = (&mut self.units[unit], &mut self.means.deck);
        let gradient = unit.store.read_gradient(deck, owner)?;
        let gradient: Option<Vec<T>> = gradient.map(|bytes| elements(&bytes));
        let mut shard: Vec<T> = elements(&unit.store.read_shard(deck, owner)?);
        change(&mut shard, gradient.as_deref());
        unit.is_written = true;
        unit.store.write_shard(deck, owner, bytemuck::cast_slice(&shard))
    }

    /// Takes this rank's rows of a full parameter, cast to its type. No rank waits for another.
    ///
    /// # Errors
    ///
    /// As [`Sharded::load_full`](crate::Sharded::load_full).
    pub fn load_full<T: Element>(&mut self, param: Param, full: &[T]) -> Result<()> {
        let (owner, dtype) = self.stored("load_full", param)?;
        let division = self.units[param.unit].layout.divisions[owner];
        crate::load::check::<T>("load_full", "full", full.len(), division.full_len())?;
        let rows = &full[division.elements(self.means.groups.rank())];
        self.happen(Event::Changed(param.unit), &[])?;
        let mut bytes = vec![0_u64; (rows.len() * dtype.byte_len()).div_ceil(size_of::<u64>())];
        let bytes = &mut bytemuck::cast_slice_mut(&mut bytes)[..rows.len() * dtype.byte_len()];
        convert(bytemuck::cast_slice(rows), T::DTYPE, bytes, dtype);
        let unit = &mut self.units[param.unit];
        unit.is_written = true;
        unit.store.write_shard(&mut self.means.deck, owner, bytes)
    }

    /// Gathers one full parameter from its shards to the host, cast to the type of `into`. All ranks of the shard group call this.
    ///
    /// # Errors
    ///
    /// As [`Sharded::copy_full`](crate::Sharded::copy_full).
    pub fn copy_full<T: Element>(&mut self, param: Param, into: &mut [T]) -> Result<()> {
        let (owner, dtype) = self.stored("copy_full", param)?;
        let unit = &self.units[param.unit];
        let division = unit.layout.divisions[owner];
        crate::load::check::<T>("copy_full", "into", into.len(), division.full_len())?;
        let shard = unit.store.read_shard(&mut self.means.deck, owner);
        let shard = shard.inspect_err(|error| self.failed = Some(error.clone()))?;
        let rank_lens = (0..division.world()).map(|rank| division.elements(rank).len()).collect::<Vec<_>>();
        let mut full = vec![0_u64; (division.full_len() * dtype.byte_len()).div_ceil(size_of::<u64>())];
        let full = &mut bytemuck::cast_slice_mut(&mut full)[..division.full_len() * dtype.byte_len()];
        let op = Op::AllGather { counts: Counts::uneven(&rank_lens) };
        self.means.groups.shard.group().run_bytes(op, dtype, None, Some(&shard), full)?;
        convert(full, dtype, bytemuck::cast_slice_mut(into), T::DTYPE);
        Ok(())
    }

    /// Forgets all gradients of shards, once the program's stream is past them. Gradients that wait on this rank to be reduced, or are on
    /// their way, are dropped with them: the next backward begins from nothing.
    ///
    /// # Errors
    ///
    /// Those of the driver.
    pub fn zero_gradients(&mut self) -> Result<()> {
        self.units.iter_mut().try_for_each(|unit| reduce::forget(unit, &mut self.means))
    }

    /// Waits on the host until all is done that is on the streams, and tells what failed.
    ///
    /// # Errors
    ///
    /// Those of the operations.
    pub fn settle(&mut self) -> Result<()> {
        self.means.deck.settle().inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Waits until all is done, gives the model's memory back, and [leaves](DeviceGroups::leave) its groups: before a program returns from `main`,
    /// which waits for no group by itself.
    ///
    /// # Errors
    ///
    /// Those of the operations, and of groups that do not end within `timeout`.
    pub fn leave(mut self, timeout: Duration) -> Result<()> {
        let settled = self.settle();
        let DeviceSharded { means, units, norms, .. } = self;
        let Means { deck, pool, groups, .. } = means;
        drop(deck);
        drop((pool, units, norms));
        let left = groups.leave(timeout);
        settled.and(left)
    }

    /// The bytes of the device that the engine holds on this rank. Gradients that backward writes to memory that is
    /// [lent](DeviceSharded::gradient_memory) count as being reduced; where shards live on the host, copies of theirs that are on their way
    /// count as they do.
    pub fn memory(&self) -> Memory {
        self.means.pool.memory()
    }

    /// The bytes of pinned memory that shards and gradients live in, where they live on the host.
    pub fn host_byte_len(&self) -> usize {
        self.units.iter().map(|unit| unit.store.host_len()).sum()
    }

    /// How often memory was asked of the device. In the steady step it is not.
    pub fn allocations(&self) -> usize {
        self.means.deck.made
    }

    /// How often the host waited for the device. In the steady step it does not, but for what it reads itself.
    pub fn host_waits(&self) -> usize {
        self.means.deck.waits
    }

    /// Units that are gathered or about to be.
    pub fn gathered(&self) -> usize {
        self.machine.gathered()
    }

    /// What happened since the trace was last taken; nothing unless the [policy](Policy::trace) asks for it. Of actions it says when they
    /// were put on their streams.
    pub fn take_trace(&mut self) -> Vec<Traced> {
        self.trace.take()
    }

    /// Plants a mistake, for tests of what finds it.
    #[cfg(feature = "mistakes")]
    pub fn plant(&mut self, mistake: super::Mistake) {
        self.means.deck.mistake = Some(mistake);
    }

    pub(super) fn unit(&self, call: &'static str, unit: usize) -> Result<&Unit<N, C, P>> {
        let expected = || format!("must be below {}, the number of units", self.units.len());
        self.units.get(unit).ok_or_else(|| Error::usage(call, "unit", unit, expected()))
    }

    /// An error where an operation failed before.
    pub(super) fn alive(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(error.clone().in_its_wake()))
    }

    fn stored(&self, call: &'static str, param: Param) -> Result<(usize, DType)> {
        let unit = self.unit(call, param.unit)?;
        let (spec, owner) = unit.layout.owner(&unit.spec, call, param.index)?;
        Ok((owner, spec.dtype))
    }

    /// What the program's stream sees from now on: gradients as they were taken.
    pub(super) fn see_gradients(&mut self) -> Result<()> {
        let deck = &self.means.deck;
        deck.join(Edge::StepAfterTake, deck.compute, deck.take)
    }
}

impl<N: Nccl, C: Cuda, P: Process> fmt::Debug for DeviceSharded<N, C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceSharded").field("machine", &self.machine).finish_non_exhaustive()
    }
}

/// Bytes that lie anywhere as elements.
fn elements<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

/// That devices have kernels for all types, and nothing is gathered in another form.
fn check(units: &[UnitSpec], policy: &Policy) -> Result<()> {
    let expected = "must be f32, f16 or bf16 on devices";
    let known = |dtype: &DType| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    let unknown = |types: [Option<DType>; 2]| types.into_iter().flatten().find(|dtype| !known(dtype));
    if let Some(dtype) = unknown([policy.compute, policy.reduce]) {
        return Err(Error::usage(CALL, "dtype", format!("{dtype} for the policy"), expected));
    }
    let of_unit = |unit: &UnitSpec| Some((unknown([unit.compute, unit.reduce])?, unit.name.clone()));
    if let Some((dtype, name)) = units.iter().find_map(of_unit) {
        return Err(Error::usage(CALL, "dtype", format!("{dtype} for unit {name:?}"), expected));
    }
    let all = units.iter().flat_map(|unit| unit.params.iter().map(move |param| (unit, param)));
    // Nothing of what is ignored comes to the device.
    for (unit, param) in all.filter(|(_, param)| param.role != Role::Ignored) {
        let value = || format!("{:?} in unit {:?}", param.name, unit.name);
        if param.extension.is_some() {
            return Err(Error::usage(CALL, "param", value(), "must not be gathered in another form on devices"));
        }
        if !known(&param.dtype) {
            return Err(Error::usage(CALL, "dtype", format!("{} for {}", param.dtype, value()), expected));
        }
    }
    Ok(())
}

const CALL: &str = "DeviceSharded::new";
