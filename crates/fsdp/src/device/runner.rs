//! A sharded model on a device over time: what its owner says goes to the machine, and what the machine asks for is put on streams.

use std::fmt;
use std::sync::Arc;

use phalanx_core::{DType, Error, Result};
use phalanx_nccl::api::{Cuda, Nccl, Process};
use phalanx_nccl::group::DeviceBuffer;

use super::after;
use super::edge::Edge;
use super::gather;
use super::model::DeviceSharded;
use super::reduce::{self, DeviceGradient};
use super::table::Places;
use super::unit::{Full, Reducing, Unit};
use crate::event::{Action, Event};
use crate::layout::UnitLayout;
use crate::reduce::{Given, check};
use crate::spec::UnitSpec;
use crate::trace::Step;

/// The full parameters of a unit, each in one piece, for what is put on the program's stream until they are freed.
pub struct Lent<C: Cuda> {
    parts: Arc<Parts>,
    memory: DeviceBuffer<C>,
}

/// What is lent of a unit whenever it is: by number, the type of a parameter, where it begins and its bytes.
#[derive(Debug)]
pub(super) struct Parts {
    unit: String,
    params: Vec<Option<(DType, usize, usize)>>,
}

impl Parts {
    /// What is lent of a unit whose full parameters lie in these places.
    pub(super) fn new(spec: &UnitSpec, layout: &UnitLayout, places: &Places) -> Parts {
        let param = |owner: &Option<usize>| {
            let (start, byte_len) = places.of((*owner)?)?;
            Some((layout.gather.span((*owner)?)?.dtype, start, byte_len))
        };
        Parts { unit: spec.name.clone(), params: layout.owners.iter().map(param).collect() }
    }
}

impl<C: Cuda> Lent<C> {
    /// A full parameter. One that is tied is that which it is tied to.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a parameter that there is not, by its number in the unit, or that is ignored.
    pub fn param(&self, index: usize) -> Result<DeviceBuffer<C>> {
        let (_, start, byte_len) = self.find(index)?;
        self.memory.part(start, byte_len)
    }

    /// The type in which it was gathered.
    ///
    /// # Errors
    ///
    /// As [`param`](Lent::param).
    pub fn dtype(&self, index: usize) -> Result<DType> {
        self.find(index).map(|(dtype, _, _)| dtype)
    }

    fn find(&self, index: usize) -> Result<(DType, usize, usize)> {
        let Parts { unit, params } = &*self.parts;
        let expected = || format!("must be one of unit {unit:?} that is not ignored");
        params.get(index).copied().flatten().ok_or_else(|| Error::usage("param", "param", index, expected()))
    }
}

impl<C: Cuda> fmt::Debug for Lent<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("parts", &self.parts).field("memory", &self.memory).finish()
    }
}

impl<N: Nccl, C: Cuda, P: Process> DeviceSharded<N, C, P> {
    /// A unit is about to be used in forward: lends its full parameters to what is put on the program's stream from now on until
    /// [`after_forward`](DeviceSharded::after_forward). Units that come next are gathered meanwhile.
    ///
    /// # Errors
    ///
    /// Those of the gather; [`Usage`](phalanx_core::ErrorKind::Usage) for a unit that there is not.
    pub fn before_forward(&mut self, unit: usize) -> Result<Lent<C>> {
        self.happen(Event::BeforeForward(unit), &[])?;
        self.lend(unit)
    }

    /// A unit is not used any more until backward: its memory is the next one's once the program's stream is past what is on it by now.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) where it was not used.
    pub fn after_forward(&mut self, unit: usize) -> Result<()> {
        self.happen(Event::AfterForward(unit), &[])
    }

    /// A unit is about to be used in backward: lends its full parameters until its [`gradients`](DeviceSharded::gradients) come. Those that
    /// came before it in forward are gathered meanwhile.
    ///
    /// # Errors
    ///
    /// As [`before_forward`](DeviceSharded::before_forward).
    pub fn before_backward(&mut self, unit: usize) -> Result<Lent<C>> {
        self.happen(Event::BeforeBackward(unit), &[])?;
        self.lend(unit)
    }

    /// Memory for the gradients of a unit in backward, one for each parameter that may bring one: a tied one may bring its own. It is the
    /// caller's until [`gradients`](DeviceSharded::gradients), and what lies there is taken by one launch. Gradients may as well lie in
    /// memory of the caller's own.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a unit that there is not, and a type that devices have no kernel for.
    pub fn gradient_memory(&mut self, unit: usize, dtype: DType) -> Result<Vec<DeviceGradient<C>>> {
        self.unit("gradient_memory", unit)?;
        if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(Error::usage("gradient_memory", "dtype", dtype, "must be f32, f16 or bf16"));
        }
        reduce::lend(&mut self.units[unit], dtype, &mut self.means)
    }

    /// A unit has been through its backward: begins to reduce its gradients, as they are once what is on the program's stream by now is
    /// done. A trained parameter without one counts as zero; a tied one may bring its own. Gradients are averaged over all ranks of the shard
    /// and the replicate group.
    ///
    /// # Errors
    ///
    /// As [`Sharded::gradients`](crate::Sharded::gradients), and for memory that ends within an element or begins where none may lie.
    pub fn gradients(&mut self, unit: usize, gradients: &[DeviceGradient<C>]) -> Result<()> {
        let held = self.unit("gradients", unit)?;
        let given = |DeviceGradient { index, dtype, buffer }: &DeviceGradient<C>| {
            Ok(Given { index: *index, dtype: *dtype, len: buffer.len("gradients", "gradient", *dtype)? })
        };
        let given = gradients.iter().map(given).collect::<Result<Vec<_>>>()?;
        check((&held.spec, &held.layout), given.into_iter())?;
        if let Some(dtype) = gradients.first().map(|gradient| gradient.dtype).filter(|dtype| *dtype == DType::F64) {
            return Err(Error::usage("gradients", "dtype", dtype, "must be f32, f16 or bf16 on devices"));
        }
        let has_any = held.layout.reduce.spans().next().is_some();
        let reduces = has_any && held.syncs;
        self.happen(Event::AfterBackward { unit, reduces }, gradients)?;
        if has_any && !reduces {
            let accumulated = reduce::accumulate_full(&mut self.units[unit], gradients, &mut self.means);
            accumulated.inspect_err(|error| self.failed = Some(error.clone()))?;
        }
        Ok(())
    }

    /// Backward is over: what is put on the program's stream from now on sees the gradients of the shards. Full parameters that are left
    /// are freed. Gradients that wait in units to which this backward did not come are reduced as
    /// [on the host](crate::Sharded::finish_backward).
    ///
    /// # Errors
    ///
    /// Those of the reductions, as far as they are known by now.
    pub fn finish_backward(&mut self) -> Result<()> {
        self.happen(Event::BackwardEnd, &[])?;
        for unit in 0..self.units.len() {
            let Unit { syncs, accumulated, partial, .. } = &self.units[unit];
            if *syncs && self.machine.is_due(accumulated.is_some(), partial.is_some()) {
                self.happen(Event::Skipped(unit), &[])?;
            }
            self.catch_up(unit)?;
        }
        self.see_gradients()
    }

    /// Gathers a unit and keeps it until it is [resharded](DeviceSharded::reshard), or its backward is over.
    ///
    /// # Errors
    ///
    /// As [`before_forward`](DeviceSharded::before_forward).
    pub fn unshard(&mut self, unit: usize) -> Result<Lent<C>> {
        self.happen(Event::Unshard(unit), &[])?;
        self.lend(unit)
    }

    /// Frees a unit's full parameters, once nobody is in it.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a unit that there is not.
    pub fn reshard(&mut self, unit: usize) -> Result<()> {
        self.happen(Event::Reshard(unit), &[])
    }

    /// Does what is to be done with gradients of a unit that were taken and waited for others, where this backward has brought none and none
    /// are on their way.
    fn catch_up(&mut self, unit: usize) -> Result<()> {
        let held = &mut self.units[unit];
        if !held.is_behind || !matches!(held.reducing, Reducing::Nothing) {
            return Ok(());
        }
        held.is_behind = false;
        after::run(held, &mut self.means).inspect_err(|error| self.failed = Some(error.clone()))?;
        self.happen(Event::Changed(unit), &[])
    }

    pub(super) fn happen(&mut self, event: Event, gradients: &[DeviceGradient<C>]) -> Result<()> {
        self.alive()?;
        let actions = self.machine.on(event)?;
        if !matches!(event, Event::Changed(_)) || !actions.is_empty() {
            self.trace.note(Step::Came(event));
        }
        for action in actions {
            self.perform(action, gradients).inspect_err(|error| self.failed = Some(error.clone()))?;
            self.trace.note(Step::Did(action));
            if let Action::Accumulate(unit) = action
                && !self.units[unit].after.is_empty()
                && !self.units[unit].is_behind
            {
                self.happen(Event::Changed(unit), &[])?;
            }
        }
        Ok(())
    }

    fn perform(&mut self, action: Action, gradients: &[DeviceGradient<C>]) -> Result<()> {
        let DeviceSharded { units, means, machine, .. } = self;
        match action {
            Action::Gather(unit) => gather::begin(&mut units[unit], means),
            Action::GatherNarrow(unit) => gather::begin_narrow(&mut units[unit], means),
            Action::AwaitGather(unit) => gather::end(&mut units[unit], means),
            Action::Narrow(unit) => gather::narrow(&mut units[unit], means),
            Action::Release(unit) => gather::release(&mut units[unit], means),
            Action::ReduceScatter(unit) => reduce::begin(&mut units[unit], gradients, means),
            Action::AwaitReduceScatter(unit) => reduce::end(&mut units[unit], Edge::TakeAfterReduce, means),
            Action::KeepPartial(unit) => reduce::keep_partial(&mut units[unit], means),
            Action::AllReduce(unit) => reduce::begin_all_reduce(&mut units[unit], means),
            Action::AwaitAllReduce(unit) => reduce::end(&mut units[unit], Edge::TakeAfterJoin, means),
            Action::Accumulate(unit) => {
                units[unit].is_behind = machine.is_awaited(unit) && !units[unit].is_given_up;
                reduce::finish(&mut units[unit], means)
            }
        }
    }

    fn lend(&self, unit: usize) -> Result<Lent<C>> {
        let held = self.unit("lend", unit)?;
        let Full::Here(block) = &held.full else { return Err(Error::setup("unit", format!("{unit} is not gathered"))) };
        Ok(Lent { parts: Arc::clone(&held.parts), memory: block.buffer.clone() })
    }
}
