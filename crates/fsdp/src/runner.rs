//! A sharded model over time: what its owner says goes to the machine, and what the machine asks for is done over the groups.

use std::iter;

use phalanx_core::{Element, Error, ReduceOp, Result};

use crate::cast::slice_mut;
use crate::event::{Action, Event};
use crate::factors;
use crate::gather::{self, Gathered};
use crate::hooks::GradientHook;
use crate::reduce::{self, Given, Gradient, Means};
use crate::sharded::Sharded;
use crate::spec::Param;
use crate::trace::Step;
use crate::unit::{Reducing, Then, Unit};

impl Sharded {
    /// A unit is about to be used in forward: lends its full parameters, which stay until [`after_forward`](Sharded::after_forward).
    /// Units that come next are gathered meanwhile.
    ///
    /// # Errors
    ///
    /// Those of the gather; [`Usage`](phalanx_core::ErrorKind::Usage) for a unit that there is not.
    pub fn before_forward(&mut self, unit: usize) -> Result<Gathered<'_>> {
        self.happen(Event::BeforeForward(unit), &[])?;
        self.lend(unit)
    }

    /// A unit is not used any more until backward.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) where it was not used.
    pub fn after_forward(&mut self, unit: usize) -> Result<()> {
        self.happen(Event::AfterForward(unit), &[])
    }

    /// A unit is about to be used in backward: lends its full parameters, which stay until its [`gradients`](Sharded::gradients) come.
    /// Those that came before it in forward are gathered meanwhile.
    ///
    /// # Errors
    ///
    /// As [`before_forward`](Sharded::before_forward).
    pub fn before_backward(&mut self, unit: usize) -> Result<Gathered<'_>> {
        self.happen(Event::BeforeBackward(unit), &[])?;
        self.lend(unit)
    }

    /// A unit has been through its backward: begins to reduce its gradients, which may be dropped at once. A trained parameter without one
    /// counts as zero; a tied one may bring its own. Gradients are averaged over all ranks of the shard and the replicate group.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for gradients of different types or lengths, and of what has none; those of an earlier
    /// reduction that is awaited here.
    pub fn gradients(&mut self, unit: usize, gradients: &[Gradient<'_>]) -> Result<()> {
        let held = self.unit("gradients", unit)?;
        reduce::check((&held.spec, &held.layout), gradients.iter().map(Given::from))?;
        let has_any = held.layout.reduce.spans().next().is_some();
        let reduces = has_any && held.syncs;
        self.happen(Event::AfterBackward { unit, reduces }, gradients)?;
        let held = &mut self.units[unit];
        if has_any && !reduces {
            let accumulated = reduce::accumulate_full(held, gradients, &mut self.arena);
            accumulated.inspect_err(|error| self.failed = Some(error.clone()))?;
        }
        for gradient in gradients {
            let (_, owner) = held.owner("gradients", gradient.index)?;
            held.note_used(owner);
        }
        Ok(())
    }

    /// Backward is over: waits for all reductions, after which the gradients of the shards are there, and frees what is left of full
    /// parameters. Gradients that wait in units to which this backward did not come are reduced as well, unless
    /// [another](Sharded::set_last_backward) is to come or the unit is [held back](Sharded::set_unit_sync).
    ///
    /// # Errors
    ///
    /// Those of the reductions.
    pub fn finish_backward(&mut self) -> Result<()> {
        self.happen(Event::BackwardEnd, &[])?;
        for unit in 0..self.units.len() {
            // Ranks come to the same units with the same settings, so that what waits is the same on all of them.
            let Unit { syncs, accumulated, partial, .. } = &self.units[unit];
            if *syncs && self.machine.is_due(accumulated.is_some(), partial.is_some()) {
                self.happen(Event::Skipped(unit), &[])?;
            }
            self.catch_up(unit)?;
        }
        Ok(())
    }

    /// The largest of the numbers that all ranks say, those of the replicas as well: for what one of them alone has come to know. All ranks call
    /// this.
    ///
    /// # Errors
    ///
    /// Those of the exchange.
    pub fn largest(&mut self, own: u64) -> Result<u64> {
        self.check_failed()?;
        let mut number = [own];
        let Sharded { groups, trace, .. } = self;
        let mut along = iter::once(&groups.shard).chain(&groups.replicate);
        let joined = trace.wait(|| along.try_for_each(|group| group.all_reduce(&mut number, ReduceOp::Max)));
        joined.inspect_err(|error| self.failed = Some(error.clone()))?;
        Ok(number[0])
    }

    /// Everything of a unit that is used was copied out: its buffer is free for the next at once, where it would be after its use anyway.
    /// The copies are the caller's memory, and not counted here.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a unit that there is not.
    pub fn copied(&mut self, unit: usize) -> Result<()> {
        self.happen(Event::Copied(unit), &[])
    }

    /// Whether the owner copies every unit as soon as it is lent, and [says so](Sharded::copied). Its copy then stands for the unit for as
    /// long as the engine [holds](Sharded::holds) it, also where that is from forward to backward, and units that come next are
    /// gathered after that, while this one is computed: the engine needs memory for a unit less.
    pub fn set_copies(&mut self, copies: bool) {
        self.machine.settings_mut().copies = copies;
    }

    /// Has `done` run for each reduced gradient of a parameter, with its shard and its gradient, both to write: a step of an optimizer
    /// that needs no other gradient, say, after which this one may be freed. Where forward has used the unit several times it runs once, with
    /// the sum of what backward brings for all of them: until then backward needs the shards as forward had them.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a parameter that is not trained, and where it is of another type.
    pub fn after_accumulate<T: Element>(
        &mut self,
        param: Param,
        mut done: impl FnMut(&mut [T], &mut [T]) -> Then + Send + 'static,
    ) -> Result<()> {
        let unit = self.unit("after_accumulate", param.unit)?;
        let owner = unit.owner_of::<T>("after_accumulate", param.index)?;
        if !unit.is_trained(owner) {
            let name = format!("{:?}", unit.spec.params[owner].name);
            return Err(Error::usage("after_accumulate", "param", name, "must be a trained one"));
        }
        let bytes = move |shard: &mut [u8], gradient: &mut [u8]| done(slice_mut(shard), slice_mut(gradient));
        self.units[param.unit].after_accumulate(owner, Box::new(bytes));
        Ok(())
    }

    /// Gathers a unit and keeps it until it is [resharded](Sharded::reshard), or its backward is over.
    ///
    /// # Errors
    ///
    /// As [`before_forward`](Sharded::before_forward).
    pub fn unshard(&mut self, unit: usize) -> Result<Gathered<'_>> {
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

    /// Whether gradients are reduced as they come. While they are not, they are summed up in full on this rank, in the type in which they
    /// are reduced; the next that are reduced take the sum along, and the end of the next backward does that of units it did not come to.
    pub fn set_sync(&mut self, syncs: bool) {
        self.units.iter_mut().for_each(|unit| unit.syncs = syncs);
    }

    /// The same for one unit.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a unit that there is not.
    pub fn set_unit_sync(&mut self, unit: usize, syncs: bool) -> Result<()> {
        self.unit("set_unit_sync", unit)?;
        self.units[unit].syncs = syncs;
        Ok(())
    }

    /// Whether replicas come together. While they do not, reduced rows are kept on this rank; the next that replicas join takes them along,
    /// or the end of the next backward.
    pub fn set_all_reduce(&mut self, all_reduces: bool) {
        self.machine.settings_mut().all_reduces = all_reduces;
    }

    /// Whether a backward follows on what comes next; without one, nothing is kept for it.
    pub fn set_training(&mut self, trains: bool) {
        self.machine.settings_mut().trains = trains;
    }

    /// Whether full parameters are freed after backward. Between micro-batches of one step they may as well stay.
    pub fn set_reshard_after_backward(&mut self, reshards: bool) {
        self.machine.settings_mut().reshards_after_backward = reshards;
    }

    /// Whether the end of backward waits for its reductions and those of units to which it did not come, as it must before an optimizer's
    /// step.
    pub fn set_last_backward(&mut self, is_last: bool) {
        self.machine.settings_mut().is_last_backward = is_last;
    }

    /// What the sum of all ranks' gradients is divided by, in place of the number of ranks: unless it is set, a rank that brings none counts as
    /// one that brings zeros, and one with fewer samples as much as the others.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for 0 and what is not finite, and where gradients are on their way or kept for replicas:
    /// they are divided in two places, and must be by the same in both.
    pub fn set_gradient_divisor(&mut self, divisor: Option<f64>) -> Result<()> {
        factors::check(divisor)?;
        self.units.iter().try_for_each(|unit| unit.check_still("set_gradient_divisor"))?;
        self.divisor = divisor;
        Ok(())
    }

    /// Has gradients travel as a hook says, in place of the engine's own reduction, its type and its divisor. Replicas then join in `f32`.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) that names a parameter whose gradients are not reduced in `f32`, which a hook takes, and where
    /// some are on their way or kept for replicas.
    pub fn set_hook(&mut self, hook: Option<Box<dyn GradientHook>>) -> Result<()> {
        for unit in &self.units {
            if hook.is_some() {
                reduce::check_hook(&unit.spec, &unit.layout.reduce)?;
            }
            unit.check_still("set_hook")?;
        }
        self.hook = hook;
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
    /// As [`prefetch_in_forward`](Sharded::prefetch_in_forward).
    pub fn prefetch_in_backward(&mut self, unit: usize, targets: &[usize]) -> Result<()> {
        self.machine.prefetch_in_backward(unit, targets)
    }

    /// That a parameter's shard is about to be written; its owner.
    pub(crate) fn changed<T: Element>(&mut self, call: &'static str, param: Param) -> Result<usize> {
        let owner = self.unit(call, param.unit)?.owner_of::<T>(call, param.index)?;
        self.note_changed(param.unit)?;
        Ok(owner)
    }

    /// That a shard of this unit is about to be written.
    pub(crate) fn note_changed(&mut self, unit: usize) -> Result<()> {
        self.happen(Event::Changed(unit), &[])
    }

    /// Does what is to be done with reduced gradients of a unit and waited for others, where this backward has brought none and none are on
    /// their way.
    fn catch_up(&mut self, unit: usize) -> Result<()> {
        let held = &mut self.units[unit];
        if !held.is_behind || !matches!(held.reducing, Reducing::Nothing) {
            return Ok(());
        }
        reduce::catch_up(held, &mut self.arena);
        self.note_changed(unit)
    }

    /// An error where an operation failed before.
    pub(crate) fn check_failed(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(error.clone().in_its_wake()))
    }

    fn happen(&mut self, event: Event, gradients: &[Gradient<'_>]) -> Result<()> {
        self.check_failed()?;
        let actions = self.machine.on(event)?;
        if !matches!(event, Event::Changed(_)) || !actions.is_empty() {
            self.trace.note(Step::Came(event));
        }
        for action in actions {
            self.perform(action, gradients).inspect_err(|error| self.failed = Some(error.clone()))?;
            self.trace.note(Step::Did(action));
            if let Action::Accumulate(unit) = action
                && self.units[unit].writes_shards()
            {
                self.note_changed(unit)?;
            }
        }
        Ok(())
    }

    fn perform(&mut self, action: Action, gradients: &[Gradient<'_>]) -> Result<()> {
        let Sharded { groups, units, machine, arena, trace, divisor, hook, .. } = self;
        let hook = hook.as_deref_mut().map(|hook| hook as &mut dyn GradientHook);
        let mut means = Means { groups, arena, trace, divisor: *divisor, hook };
        match action {
            Action::Gather(unit) => gather::begin(&mut units[unit], unit, means.groups, means.arena),
            Action::GatherNarrow(unit) => gather::begin_narrow(&mut units[unit], unit, means.groups, means.arena),
            Action::AwaitGather(unit) => gather::end(&mut units[unit], means.trace),
            Action::Narrow(unit) => gather::narrow(&mut units[unit], means.groups, means.arena),
            Action::Release(unit) => {
                gather::release(&mut units[unit], means.arena);
                Ok(())
            }
            Action::ReduceScatter(unit) => reduce::begin(&mut units[unit], unit, gradients, &mut means),
            Action::AwaitReduceScatter(unit) => reduce::end_scatter(&mut units[unit], unit, &mut means),
            Action::KeepPartial(unit) => reduce::keep_partial(&mut units[unit], &mut means),
            Action::AllReduce(unit) => reduce::begin_all_reduce(&mut units[unit], unit, &mut means),
            Action::AwaitAllReduce(unit) => reduce::end_all_reduce(&mut units[unit], &mut means),
            Action::Accumulate(unit) => {
                units[unit].is_behind = machine.is_awaited(unit) && !units[unit].is_given_up;
                reduce::finish(&mut units[unit], &mut means)
            }
        }
    }

    fn lend(&self, unit: usize) -> Result<Gathered<'_>> {
        let absent = || Error::setup("unit", format!("{unit} is not gathered"));
        let copied = || self.units.get(unit).filter(|_| self.machine.is_copied(unit)).map(Gathered::copied);
        self.gathered(unit).or_else(copied).ok_or_else(absent)
    }
}
