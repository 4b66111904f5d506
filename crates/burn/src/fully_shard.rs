//! Full parameters only while a unit runs: between the engine, which knows bytes, and burn's modules. When they are gathered and freed is
//! decided by the engine.

use std::any::Any;
use std::time::Duration;

use burn::module::Module;
use burn::tensor::{Gradients, Tensor, TensorData};
use burn_optim::ModuleOptimizer;
use burn_optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use phalanx_core::{DType, Error, Result};
use phalanx_fsdp::{Groups, Memory, Param, ParamSpec, Part, Policy, Reshard, Sharded, UnitSpec, refuse};

use crate::flow::Flow;
use crate::held::{Held, Typed};
use crate::tape::{Backward, Passed, Segment, Way, hand_back};
use crate::units::{Unit, UnitOptions, Units};
use crate::values;
use crate::walk::Parameter;

/// A model whose parameters, gradients and optimizer state are divided among ranks: FSDP, and HSDP where [`Groups`] have replicas.
///
/// All ranks run the same units in the same order.
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use burn_nn::LinearConfig;
/// use burn_optim::AdamWConfig;
/// use phalanx_burn::{FullyShard, Policy, Units};
/// use phalanx_comm::Threads;
///
/// let losses = Threads::new(2).run(|group| {
///     let device = Device::flex().autodiff();
///     let mut units = Units::new();
///     let first = units.add("first", LinearConfig::new(8, 32).init(&device));
///     let second = units.add("second", LinearConfig::new(32, 1).init(&device));
///     let mut model = FullyShard::new(group, Policy::default(), units)?;
///     let mut optimizer = AdamWConfig::new().init();
///     let mut losses = vec![];
///     for _step in 0..3 {
///         let x = Tensor::<2>::random([16, 8], Distribution::Default, &device);
///         let y = model.run(first, x, |layer, x| layer.forward(x).tanh())?;
///         let loss = model.run(second, y, |layer, y| layer.forward(y))?.powf_scalar(2.0).mean();
///         model.backward(&loss)?;
///         model.clip(1.0)?;
///         model.step(&mut optimizer, 1e-3)?;
///         losses.push(loss.into_scalar::<f32>());
///     }
///     Ok::<_, phalanx_core::Error>(losses)
/// })?;
/// assert!(losses.iter().all(|losses| losses.is_ok()));
/// # Ok::<(), phalanx_core::Error>(())
/// ```
pub struct FullyShard {
    engine: Sharded,
    held: Vec<Box<dyn Held>>,
    /// Which units' full parameters stay from forward to backward.
    keeps: Vec<bool>,
    parts: Vec<Part>,
    params: Vec<Param>,
    trains: bool,
    tape: Vec<Box<dyn Segment>>,
    /// The number of the units it was made of.
    number: u64,
}

impl FullyShard {
    /// Takes this rank's rows of all parameters, trained ones with the values that they have on this rank, and frozen ones with those of the
    /// first. All ranks call this: what they say of the model is compared.
    ///
    /// Where the policy frees full parameters after forward, which it does unless told otherwise, backward runs the unit again, because burn
    /// keeps what a graph was made of. Unless they say themselves what becomes of them, the last unit that was added is kept, and so are those
    /// with running averages, which would count twice what they see. What ranks hold and optimizers change is `f32`, and frozen parameters are
    /// held in the type that they have; all are gathered and computed with in `f32` unless the policy says [`compute`](Policy::compute), or the
    /// [unit](UnitOptions::compute) does.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for no unit, a unit of a name or with a parameter that another one has, no trained parameter at
    /// all, one on a device without autodiff, a running average of another type than its unit is computed in, a policy that says
    /// [`output`](Policy::output), because what units return is cast by themselves, and what the engine refuses;
    /// [`Desync`](phalanx_core::ErrorKind::Desync) on all ranks where they do not say the same.
    pub fn new(groups: impl Into<Groups>, policy: Policy, units: Units) -> Result<FullyShard> {
        let (groups, Units { mut held, number }) = (groups.into(), units);
        check(&held, &policy).map_err(|error| refuse(&groups, error))?;
        let last = held.len() - 1;
        let reshards = held.iter().enumerate().map(|(at, unit)| {
            let is_kept = at == last || unit.survey().has_averages();
            unit.options().reshard.unwrap_or(if is_kept { Reshard::No } else { policy.reshard() })
        });
        let reshards: Vec<Reshard> = reshards.collect();
        let spec = |(at, reshard): (usize, &Reshard)| {
            let unit = &held[at];
            let named = |name: &str| format!("{}.{name}", unit.name());
            let param = |one: &Parameter| {
                ParamSpec::new(named(&one.name), &one.shape, values::held_type(one)).trainable(one.is_trained)
            };
            let params = unit.parameters().iter().map(param);
            // The engine has nothing to do with the rest, but compares it.
            let other = |one: &Parameter| values::told(&named(&one.name), one).ignored();
            let others = unit.survey().others.iter().map(other);
            let spec = UnitSpec::new(unit.name(), params.chain(others).collect()).reshard_after_forward(*reshard);
            let UnitOptions { compute, reduce, .. } = unit.options();
            let spec = if let Some(dtype) = compute { spec.compute(dtype) } else { spec };
            if let Some(dtype) = reduce { spec.reduce(dtype) } else { spec }
        };
        let specs = reshards.iter().enumerate().map(spec).collect();
        let compute = policy.compute_dtype().unwrap_or(DType::F32);
        let reduce = policy.reduce_dtype().unwrap_or(DType::F32);
        let mut engine = Sharded::new(groups.clone(), specs, policy.compute(compute).reduce(reduce))?;
        engine.set_copies(true);
        for (unit, held) in held.iter_mut().enumerate() {
            held.hand_over(&mut |index, full| values::load(&mut engine, Param { unit, index }, &full), &mut |bytes| {
                groups.shard().broadcast(bytes, 0)?;
                groups.replicas().map_or(Ok(()), |replicas| replicas.broadcast(bytes, 0))
            })?;
        }
        engine.broadcast_replicas()?;
        let params: Vec<Param> = engine.trained().collect();
        let parts = params.iter().map(|param| engine.part(*param)).collect::<Result<_>>()?;
        let keeps = reshards.iter().map(|reshard| *reshard == Reshard::No).collect();
        Ok(FullyShard { engine, held, keeps, parts, params, trains: true, tape: vec![], number })
    }

    /// Runs a unit: `forward` with its module, full parameters and all, and an input. What it returns is cut off from how it came about:
    /// its gradients come back by [`backward`](FullyShard::backward).
    ///
    /// A unit may be run several times, by other functions too: an output layer that is the embedding, say. What a unit is given comes from
    /// units or from elsewhere as it is; what is made of several units' outputs is made in a unit.
    ///
    /// `forward` computes with its module, its input and constants. A module that it has captured is of no unit: nobody shards it, makes it the
    /// same on all ranks or trains it. In a unit that is run again in backward that is refused, and so is what another unit has returned, unless it
    /// comes as the input. In one that is kept ([`Reshard::No`], and the last) it cannot be seen.
    ///
    /// # Errors
    ///
    /// Those of the gather; [`Usage`](phalanx_core::ErrorKind::Usage) for the unit of another model, an input that was computed from what
    /// units have returned, and a function that has captured what has gradients, as far as that is seen.
    ///
    /// # Panics
    ///
    /// Where `forward` does, as burn's operations on tensors that do not fit each other.
    pub fn run<M, I, O>(&mut self, unit: Unit<M>, input: I, forward: impl Fn(&M, I) -> O + 'static) -> Result<O>
    where
        M: Module + 'static,
        I: Flow,
        O: Flow,
    {
        let at = unit.at;
        self.typed(unit)?;
        if !input.is_cut() {
            let value = format!("for unit {:?}, computed from what units returned", self.held[at].name());
            return Err(Error::usage("run", "input", value, "must be what a unit returned: compute it in this unit"));
        }
        self.engine.before_forward(at)?;
        self.fill(at)?;
        let typed = self.typed(unit)?;
        let (output, way) = match (self.trains, self.keeps[at]) {
            (false, _) => (forward(&typed.full()?.valid(), input.plain()).plain(), None),
            (true, true) => {
                let module = typed.tracked()?;
                let output = forward(&module, input);
                (output.clone(), Some(Way::Kept { module, output }))
            }
            (true, false) => {
                let output = forward(typed.full()?, input.clone().detached());
                (output, Some(Way::Again { input, forward }))
            }
        };
        self.engine.after_forward(at)?;
        self.settle(at);
        // In what is to be run again no graph begins from the module or the input. One that is there begins from what the function has from
        // elsewhere, or has made itself, and its gradients would come to nobody.
        if matches!(way, Some(Way::Again { .. })) && !output.is_cut() {
            let value = format!("for unit {:?}, computing with what has gradients outside of it", self.held[at].name());
            let expected = "must have what another unit returned as part of its input, `(x, skip)`; a module is a unit of \
                            its own, or frozen";
            return Err(Error::usage("run", "forward", value, expected));
        }
        let Some(way) = way else { return Ok(output) };
        let returned = output.cut();
        let (gradient, is_reached) = (O::Gradient::default(), false);
        self.tape.push(Box::new(Passed { unit: at, returned: returned.clone(), gradient, is_reached, way }));
        Ok(returned)
    }

    /// Runs backward from a loss through all units that were run since the last backward, and averages their gradients over all ranks. Those
    /// of several backwards add up until a [`step`](FullyShard::step). What units returned leads nowhere after it, and no gradient goes from one
    /// model to another. All ranks call this.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a loss that was computed from nothing that units returned since, and, on all ranks, for a unit
    /// that returns something else when it is run again, be it on one of them; those of the gathers and reductions. After an error what was run is
    /// forgotten, and gradients are dropped.
    ///
    /// # Panics
    ///
    /// For a loss of an earlier backward, once units were run anew: burn cannot tell that its graph is gone.
    pub fn backward<const D: usize>(&mut self, loss: &Tensor<D>) -> Result<()> {
        self.run_all_back(loss).inspect_err(|_| self.zero_gradients())
    }

    fn run_all_back<const D: usize>(&mut self, loss: &Tensor<D>) -> Result<()> {
        let mut tape = std::mem::take(&mut self.tape);
        // A graph that was run back already is of no loss to burn, and a panic.
        if tape.is_empty() || !loss.is_tracked() || !hand_back(&mut tape, &mut loss.backward()) {
            let expected = "must be computed from what units returned since the last backward";
            return Err(Error::usage("backward", "loss", "another one", expected));
        }
        let mut failed = None;
        while let Some(segment) = tape.pop() {
            if let Some(mut left) = self.run_back(segment, &mut failed)? {
                hand_back(&mut tape, &mut left);
            }
        }
        self.engine.finish_backward()?;
        self.settle_all();
        self.agree(failed)
    }

    /// Runs one unit backwards, and begins to average its gradients; what is left for the units before. One that fails on this rank alone brings
    /// none, and has the others wait for nothing.
    fn run_back(&mut self, segment: Box<dyn Segment>, failed: &mut Failed) -> Result<Option<Gradients>> {
        let at = segment.unit();
        self.engine.before_backward(at)?;
        // Also where no gradient has come: ranks must gather the same.
        self.fill(at)?;
        let ran = segment.backward(&*self.held[at]);
        let Backward { left, of_parameters } = ran.unwrap_or_else(|error| {
            failed.get_or_insert((at, error));
            Backward::default()
        });
        let lent = of_parameters.iter().map(|(index, data)| values::gradient(*index, data));
        let lent = lent.collect::<Result<Vec<_>>>().unwrap_or_else(|error| {
            failed.get_or_insert((at, error));
            vec![]
        });
        self.engine.gradients(at, &lent)?;
        self.settle(at);
        Ok(left)
    }

    /// Ends a backward alike on all ranks: without the gradients of one, what the others have is no average. Where units failed on several of
    /// them, the rest is told of one.
    fn agree(&mut self, failed: Failed) -> Result<()> {
        let shard = self.engine.groups().shard();
        let rank = shard.world_rank(shard.rank()).unwrap_or_default() as u64;
        // Nothing is 0.
        let own = failed.as_ref().map_or(0, |(unit, _)| (((*unit as u64) << 32) | rank) + 1);
        let told = self.engine.largest(own);
        if let Some((_, error)) = failed {
            return Err(error);
        }
        let Some(told) = told?.checked_sub(1) else { return Ok(()) };
        let name = self.held.get((told >> 32) as usize).map_or("", |held| held.name());
        let value = format!("{name:?}, which failed on rank {}", told as u32);
        let expected = "must run on all ranks: the error there says why it did not, and gradients are dropped on all";
        Err(Error::usage("backward", "unit", value, expected))
    }

    /// Has an optimizer step over this rank's rows of all parameters for which there is a gradient, and drops all gradients. The optimizer
    /// remembers what it does for these rows alone. It sees each parameter as this rank's rows of it, so that it has to be one that treats
    /// every element by itself, as Adam and SGD do and Muon or LAMB do not; groups of parameters go by the path within the unit. One to which no
    /// gradient came on any rank is stepped with zero.
    ///
    /// What it remembers is saved and loaded by burn (`ModuleOptimizer::to_record`), by each rank for itself, among as many ranks.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for an optimizer that clips gradients, which would see this rank's alone:
    /// [`clip`](FullyShard::clip) does it over all ranks.
    pub fn step(&mut self, optimizer: &mut ModuleOptimizer, rate: impl Into<ModuleLearningRate>) -> Result<()> {
        let rate = rate.into();
        if optimizer.has_gradient_clipping() {
            let expected = "must not clip gradients: FullyShard::clip does, over all ranks";
            return Err(Error::usage("step", "optimizer", "one that clips gradients", expected));
        }
        for unit in 0..self.held.len() {
            let engine = &mut self.engine;
            let indices = 0..self.held[unit].parameters().len();
            let parts = indices.clone().map(|index| part(engine, &*self.held[unit], Param { unit, index }));
            let parts = parts.collect::<Result<Vec<_>>>()?;
            let mut stepped = self.held[unit].step(parts, optimizer, rate.clone())?.into_iter().peekable();
            for index in indices {
                if !self.held[unit].parameters()[index].is_trained {
                    continue;
                }
                // Every rank says so of every trained parameter, whether it holds any of it or not.
                let shard = engine.shard_mut::<f32>(Param { unit, index })?;
                if let Some((_, values)) = stepped.next_if(|(at, _)| *at == index) {
                    shard.copy_from_slice(&values);
                }
            }
        }
        self.settle_all();
        self.zero_gradients();
        Ok(())
    }

    /// Multiplies all gradients such that their norm over all ranks is at most `most`; the norm that it was before. All ranks call this.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a bound that is not above zero, and those of the exchange.
    pub fn clip(&mut self, most: f64) -> Result<f64> {
        self.engine.clip_gradients(most, 2.0)
    }

    /// Drops all gradients, those as well that stayed on this rank for a later backward.
    pub fn zero_gradients(&mut self) {
        self.engine.zero_gradients();
    }

    /// Forgets what was run since the last backward, of which there will be none: a step that is given up.
    pub fn forget(&mut self) {
        self.tape.clear();
    }

    /// Whether backwards follow. Without, modules are run as burn has them for validation ([`Module::valid`]), outside autodiff, and nothing is
    /// kept.
    pub fn set_training(&mut self, trains: bool) {
        self.trains = trains;
        self.engine.set_training(trains);
    }

    /// Whether gradients are averaged with each backward, or summed up on this rank for a later one that does.
    pub fn set_sync(&mut self, syncs: bool) {
        self.engine.set_sync(syncs);
    }

    /// This rank's parts of all trained parameters, in the order of units: `unit.path` is the name of each.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Shows this rank's part of each parameter, by its number in [`parts`](FullyShard::parts).
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn look(&self, mut look: impl FnMut(usize, &[f32])) -> Result<()> {
        for (at, param) in self.params.iter().enumerate() {
            look(at, self.engine.shard::<f32>(*param)?);
        }
        Ok(())
    }

    /// Shows this rank's part of each parameter to write, with its gradient where there is one. All ranks call this between the same steps.
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn update(&mut self, mut update: impl FnMut(usize, &mut [f32], Option<&[f32]>)) -> Result<()> {
        for (at, param) in self.params.iter().enumerate() {
            let (values, gradient) = self.engine.update::<f32>(*param)?;
            update(at, values, gradient);
        }
        self.settle_all();
        Ok(())
    }

    /// The module of a unit with its full parameters, in the types in which ranks hold them: to be saved, or used without ranks. All ranks
    /// call this. Running averages in it are the unit's own, and go on with it; they and frozen parameters are not among
    /// [`parts`](FullyShard::parts), so this is how they are saved.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for the unit of another model; those of the gather.
    pub fn module<M: Module + 'static>(&mut self, unit: Unit<M>) -> Result<M> {
        self.typed(unit)?;
        let mut full = vec![];
        for (index, parameter) in self.held[unit.at].parameters().iter().enumerate() {
            full.push(values::full(&self.engine, Param { unit: unit.at, index }, parameter)?);
        }
        // One that stands in two places has the same values in both.
        self.typed(unit)?.with(&mut |at, _| Ok(full[at].clone()))
    }

    /// The names of trained parameters to which no gradient came on this rank since gradients were last dropped.
    pub fn unused(&self) -> Vec<String> {
        let unused = self.engine.unused();
        let named = self.params.iter().zip(&self.parts).filter(|(param, _)| unused.contains(param));
        named.map(|(_, part)| part.name.clone()).collect()
    }

    /// The bytes that the engine holds on this rank. The tensors of full parameters are burn's.
    pub fn memory(&self) -> Memory {
        self.engine.memory()
    }

    /// How long this rank has waited for others so far.
    pub fn waited(&self) -> Duration {
        self.engine.waited()
    }

    /// The engine, for communication hooks and what else this adapter does not offer.
    pub fn engine(&mut self) -> &mut Sharded {
        &mut self.engine
    }

    fn typed<M: Module + 'static>(&self, unit: Unit<M>) -> Result<&Typed<M>> {
        let held = self.held.get(unit.at).filter(|_| unit.of == self.number);
        let held = held.and_then(|held| (&**held as &dyn Any).downcast_ref());
        held.ok_or_else(|| Error::usage("FullyShard", "unit", unit.at, "must be one of this model's"))
    }

    /// Gives a unit's module its full parameters, once the engine has lent them. It lends nothing where the copy of before still stands for
    /// them, and everything where shards were changed since.
    fn fill(&mut self, at: usize) -> Result<()> {
        let held = &mut self.held[at];
        if let Some(gathered) = self.engine.gathered(at) {
            held.fill(&mut |index, parameter| values::gathered(&gathered, index, &parameter.shape))?;
        } else if !held.is_filled() {
            return Err(Error::setup(format!("unit {:?}", held.name()), "it is not gathered"));
        }
        self.engine.copied(at)
    }

    /// Gives up the memory of a unit's full parameters once the engine has freed them.
    fn settle(&mut self, at: usize) {
        if !self.engine.holds(at) {
            self.held[at].empty();
        }
    }

    fn settle_all(&mut self) {
        (0..self.held.len()).for_each(|at| self.settle(at));
    }
}

impl std::fmt::Debug for FullyShard {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units: Vec<&str> = self.held.iter().map(|held| held.name()).collect();
        formatter.debug_struct("FullyShard").field("units", &units).field("engine", &self.engine).finish()
    }
}

/// The first unit whose backward failed on this rank alone, and of what.
type Failed = Option<(usize, Error)>;

/// This rank's rows of a parameter and their gradient, for an optimizer; nothing where there are none of either.
fn part(engine: &Sharded, held: &dyn Held, param: Param) -> Result<Option<(TensorData, TensorData)>> {
    if !held.parameters()[param.index].is_trained {
        return Ok(None);
    }
    let (values, gradient) = (engine.shard::<f32>(param)?, engine.gradient::<f32>(param)?);
    let Some(gradient) = gradient.filter(|_| !values.is_empty()) else { return Ok(None) };
    let mut shape = held.parameters()[param.index].shape.clone();
    let row: usize = shape.iter().skip(1).product();
    if let Some(rows) = shape.first_mut() {
        *rows = values.len() / row;
    }
    let data = |values: &[f32]| TensorData::new(values.to_vec(), shape.as_slice());
    Ok(Some((data(values), data(gradient))))
}

fn check(held: &[Box<dyn Held>], policy: &Policy) -> Result<()> {
    let refuse =
        |argument, value: String, expected: &str| Err(Error::usage("FullyShard::new", argument, value, expected));
    if let Some(dtype) = policy.output_dtype() {
        return refuse(
            "policy",
            format!("outputs of {dtype}"),
            "must leave outputs as they are: cast what units return",
        );
    }
    if held.is_empty() {
        return refuse("units", "none".to_owned(), "must be at least one");
    }
    if !held.iter().any(|unit| unit.parameters().iter().any(|one| one.is_trained)) {
        let expected = "must be on a device with autodiff (Device::autodiff) and not be frozen";
        return refuse("units", "no trained parameter".to_owned(), expected);
    }
    for (at, unit) in held.iter().enumerate() {
        let compute = unit.options().compute.or(policy.compute_dtype()).unwrap_or(DType::F32);
        if let Some(name) = &unit.survey().plain {
            let value = format!("{:?} of {:?} on a device without it", name, unit.name());
            return refuse(
                "units",
                value,
                "must be on devices with autodiff (Device::autodiff), those that are frozen too",
            );
        }
        let is_other = |dtype| values::wire_type(dtype).is_some_and(|dtype| dtype != compute);
        if let Some(Parameter { name, dtype, .. }) = unit.survey().others.iter().find(|one| is_other(one.dtype)) {
            let value = format!("{name:?} of {:?}, a running average of {dtype:?}", unit.name());
            return refuse("units", value, &format!("must be of {compute}, in which parameters are computed with"));
        }
        for parameter in unit.parameters() {
            let has_it = |other: &dyn Held| other.parameters().iter().any(|one| one.id == parameter.id);
            if let Some(other) = held[..at].iter().find(|other| has_it(&***other)) {
                let value = format!("{:?} in {:?} and in {:?}", parameter.name, other.name(), unit.name());
                let expected = "must not share parameters: run the one that has it by another function";
                return refuse("units", value, expected);
            }
        }
    }
    Ok(())
}
