//! A model that is trained in one of the ways there are: forward, backward, and what an optimizer needs.

use std::any::Any;
use std::time::Duration;

use candle_core::Tensor;
use phalanx_fsdp::Part;

use crate::error::{Error, Result};
use crate::sharing::Sharing;
use crate::storage;
use crate::strategy::{Held, Strategy};
use crate::tape::{self, Gradients, Segment};
use crate::unit::Unit;

/// Units in the hands of a [`Strategy`].
pub struct Model {
    units: Vec<Unit>,
    strategy: Box<dyn Strategy>,
    sharing: Sharing,
    recomputes: bool,
    tape: Vec<Segment>,
    /// What the last forward returned: where its backward begins.
    output: Option<Tensor>,
}

impl Model {
    /// Hands units to a strategy, with the values that their parameters have now.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] for no unit, no trained parameter at all, two parameters of one name, a variable twice in a unit, one that a sharded model
    /// has, or what the strategy refuses.
    pub fn new(mut units: Vec<Unit>, mut strategy: impl Strategy) -> Result<Model> {
        let settled = check(&units).and_then(|()| Sharing::settle(&mut units));
        let settled = settled.and_then(|sharing| check_names(&units).map(|()| sharing));
        let sharing = settled.map_err(|why| strategy.refuse(why))?;
        strategy.adopt(&units)?;
        Ok(Model { units, strategy: Box::new(strategy), sharing, recomputes: false, tape: vec![], output: None })
    }

    /// The strategy, if it is of this type: for what a model does not offer by itself, such as communication hooks.
    pub fn strategy_mut<S: Strategy>(&mut self) -> Option<&mut S> {
        let strategy: &mut dyn Any = &mut *self.strategy;
        strategy.downcast_mut()
    }

    /// Whether backward runs every unit once more rather than that forward keeps what it has computed: less memory, a third more
    /// time (activation checkpointing). [`Unit::recompute`] says the same for one unit, and what its module must keep to.
    pub fn recompute(mut self, recomputes: bool) -> Model {
        self.recomputes = recomputes;
        self
    }

    /// Runs all units and keeps what backward needs.
    ///
    /// # Errors
    ///
    /// Those of the units and of the strategy; [`Error::Usage`] for a unit of a sharded model that computes with a variable of another one, which
    /// it was [not given](Unit::parameter).
    pub fn forward(&mut self, input: &Tensor) -> Result<Tensor> {
        self.tape.clear();
        self.output = None;
        self.strategy.set_training(true);
        // Nobody wants its gradient.
        let mut x = input.contiguous()?.detach();
        for index in 0..self.units.len() {
            self.strategy.before_forward(&self.units, index)?;
            let unit = &self.units[index];
            let ran = tape::forward(unit.module.as_ref(), x, self.recomputes || unit.recomputes);
            let (output, segment) = ran.map_err(|why| explained(&self.units, unit, why))?;
            self.leave_forward(index)?;
            self.tape.push(segment);
            x = output;
        }
        self.output = Some(x.clone());
        self.cast(x)
    }

    /// Runs all units and keeps nothing.
    ///
    /// # Errors
    ///
    /// As [`forward`](Model::forward).
    pub fn predict(&mut self, input: &Tensor) -> Result<Tensor> {
        self.strategy.set_training(false);
        // As forward hands it over: what runs there runs here.
        let mut x = input.contiguous()?.detach();
        for index in 0..self.units.len() {
            self.strategy.before_forward(&self.units, index)?;
            let unit = &self.units[index];
            let ran = unit.module.forward(&x).and_then(|output| output.contiguous());
            x = ran.map_err(|why| explained(&self.units, unit, why))?.detach();
            // What is part of a parameter goes with it.
            if unit.vars().any(|var| storage::is_shared(&x, var)) {
                x = x.force_contiguous()?.detach();
            }
            self.leave_forward(index)?;
        }
        self.cast(x)
    }

    /// The output in the type that was asked for.
    fn cast(&self, output: Tensor) -> Result<Tensor> {
        match self.strategy.output_dtype() {
            Some(dtype) => Ok(output.to_dtype(dtype)?),
            None => Ok(output),
        }
    }

    /// Ends the forward of a unit, and of those that were kept for it.
    fn leave_forward(&mut self, index: usize) -> Result<()> {
        let own = (!self.sharing.lends(index)).then_some(index);
        own.into_iter()
            .chain(self.sharing.lenders(index))
            .try_for_each(|unit| self.strategy.after_forward(&self.units, unit))
    }

    /// Begins the backward of those on which a unit depends, and of itself unless it has begun for another one.
    fn enter_backward(&mut self, index: usize) -> Result<()> {
        let own = (!self.sharing.lends(index)).then_some(index);
        self.sharing.lenders(index).chain(own).try_for_each(|unit| self.strategy.before_backward(&self.units, unit))
    }

    /// Runs all units backwards from a loss that was computed from what [`forward`](Model::forward) returned last. Gradients add up
    /// until [`zero_gradients`](Model::zero_gradients).
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] where there was no forward, or the loss has nothing to do with it or computes with another variable, whose gradient nobody
    /// would take: a learnable temperature, a parameter of which it adds the square, what another model's forward returned. What the units have
    /// computed stays then, and another loss of it may follow.
    ///
    /// [`Error::Usage`] for a unit that computes with a variable that it was [not given](Unit::parameter), and what a unit or the strategy says. Then
    /// this backward is given up, and all gradients are dropped, those of earlier backwards as well, to which its own were added. All ranks go on
    /// with another forward, or none: one to which that happens alone has to leave the group, as the others wait for its gradients. After an [`Error::Ranks`] a model of several ranks fails from then on.
    pub fn backward(&mut self, loss: &Tensor) -> Result<()> {
        let gradient = self.gradient_of_output(loss)?;
        self.output = None;
        self.sharing.clear();
        let ran = self.run_backwards(gradient);
        if ran.is_err() {
            self.tape.clear();
            self.strategy.zero_gradients();
        }
        ran
    }

    /// The gradient of what forward returned last, where that is all that the loss has one of.
    fn gradient_of_output(&self, loss: &Tensor) -> Result<Tensor> {
        let absent = || Error::Usage("backward: no forward went before".to_owned());
        let cut_off = || Error::Usage("backward: the loss does not depend on what forward returned last".to_owned());
        let output = self.output.as_ref().ok_or_else(absent)?;
        let mut gradients = loss.backward()?;
        let gradient = gradients.remove(output).ok_or_else(cut_off)?;
        check_strays(&self.units, None, &tape::strays(loss, &gradients))?;
        Ok(gradient)
    }

    /// Goes back through the tape from the gradient of its end.
    fn run_backwards(&mut self, of_output: Tensor) -> Result<()> {
        let mut gradient = Some(of_output);
        while let Some(segment) = self.tape.pop() {
            let index = self.tape.len();
            self.enter_backward(index)?;
            let unit = &self.units[index];
            // Where nothing before this point is reached the other ranks may know nothing of that.
            let mut own = vec![None; unit.parameters.len()];
            if let Some(of_output) = gradient.take() {
                let vars = unit.vars().cloned();
                let ran = segment.backward(unit.module.as_ref(), of_output, vars);
                let ran = ran.map_err(|why| of_unit(unit, why))?;
                let Gradients { of_input, mut of_vars, strays } = ran;
                check_strays(&self.units, Some(unit), &strays)?;
                self.sharing.owe(unit, of_vars.drain(own.len()..))?;
                (gradient, own) = (of_input, of_vars);
            }
            self.sharing.pay(index, &mut own)?;
            self.strategy.gradients(&self.units, index, own)?;
        }
        self.strategy.finish_backward(&self.units)
    }

    /// Whether the next backward exchanges gradients. Those of a backward that does not stay on this rank, and the next that does
    /// takes them along.
    pub fn set_sync(&mut self, syncs: bool) {
        self.strategy.set_sync(syncs);
    }

    /// Which elements of which parameter this rank updates.
    pub fn parts(&self) -> &[Part] {
        self.strategy.parts()
    }

    /// Shows this rank's values of each parameter, by its number in [`parts`](Model::parts): for a checkpoint, say. A rank may look alone, and
    /// after a failure of its group as well.
    ///
    /// # Errors
    ///
    /// Those of the strategy.
    pub fn look(&self, mut look: impl FnMut(usize, &[f32])) -> Result<()> {
        self.strategy.look(&self.units, &mut look)
    }

    /// Shows this rank's part of each parameter, by its number in [`parts`](Model::parts), to write, with its gradient where there is one. All
    /// ranks call this between the same steps, also those that change nothing: what was gathered before is gathered again. Who only
    /// wants to see values [looks](Model::look) at them.
    ///
    /// # Errors
    ///
    /// Those of the strategy.
    pub fn update(&mut self, mut step: impl FnMut(usize, &mut [f32], Option<&[f32]>)) -> Result<()> {
        self.strategy.update(&self.units, &mut step)
    }

    /// Sets every parameter from its full values, of which this rank takes its part. All ranks call this.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] where there are not as many values as a parameter has elements.
    pub fn load(&mut self, mut values: impl FnMut(&str, &[usize]) -> Result<Vec<f32>>) -> Result<()> {
        let parts = self.parts().to_vec();
        let mut failed = None;
        self.update(|index, own, _| {
            let part = &parts[index];
            let mut load = || -> Result<()> {
                let full = values(&part.name, &part.shape)?;
                let len = part.shape.iter().product::<usize>();
                if full.len() != len {
                    return Err(Error::Usage(format!("load: {} values for {} of {len}", full.len(), part.name)));
                }
                own.copy_from_slice(&full[part.elements.clone()]);
                Ok(())
            };
            if failed.is_none() {
                failed = load().err();
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Multiplies all gradients such that their norm over all ranks is at most `most`; the norm that it was before.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] for a bound that is not above zero, and those of the strategy.
    pub fn clip(&mut self, most: f64) -> Result<f64> {
        if most.is_nan() || most <= 0.0 {
            return Err(Error::Usage(format!("clip: most is {most}: must be above zero")));
        }
        self.strategy.clip(most)
    }

    /// Drops all gradients, those as well that stayed on this rank for a later backward.
    pub fn zero_gradients(&mut self) {
        self.strategy.zero_gradients();
    }

    /// The names of trained parameters that got no gradient on this rank since gradients were last dropped: cut off by mistake, or on
    /// a branch that was not taken.
    pub fn unused(&self) -> Vec<String> {
        self.strategy.unused()
    }

    /// Bytes of parameters and gradients on this rank.
    pub fn held(&self) -> Held {
        self.strategy.held()
    }

    /// How long this rank has waited for others so far.
    pub fn waited(&self) -> Duration {
        self.strategy.waited()
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Model").field("units", &self.units).field("recomputes", &self.recomputes).finish()
    }
}

/// Why the forward of a unit failed. Where that was for the memory of a variable, it is another unit's: its own are there. A model of which
/// nothing was taken knows such words from elsewhere.
fn explained(units: &[Unit], unit: &Unit, why: candle_core::Error) -> Error {
    let told = why.to_string();
    if !told.contains(storage::ABSENT) || !units.iter().flat_map(Unit::vars).any(storage::is_taken) {
        return of_unit(unit, why);
    }
    let what = format!("unit {} computes with a variable of another unit, outside which it has no memory", unit.name);
    Error::Usage(format!("forward: {what}: must be given to it by Unit::parameter or Unit::frozen ({told})"))
}

/// What went wrong in a unit, of which there may be many alike.
fn of_unit(unit: &Unit, why: candle_core::Error) -> Error {
    why.context(format!("unit {}", unit.name)).into()
}

/// Refuses names that stand for two parameters. A variable that units share goes by the name that the first of them gives it.
fn check_names(units: &[Unit]) -> Result<()> {
    let mut names: Vec<&str> = units.iter().flat_map(|unit| &unit.parameters).map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::Usage(format!("Model::new: two parameters are named {}", twice[0])));
    }
    Ok(())
}

fn check(units: &[Unit]) -> Result<()> {
    if units.is_empty() {
        return Err(Error::Usage("Model::new: no units".to_owned()));
    }
    let mut parameters = units.iter().flat_map(|unit| &unit.parameters);
    if let Some(taken) = parameters.clone().find(|one| storage::is_taken(&one.var)) {
        let why = format!("a sharded model has the values of {}: must be a new variable", taken.name);
        return Err(Error::Usage(format!("Model::new: {why}")));
    }
    if !parameters.any(|one| one.is_trained) {
        let why = "no trained parameter: units must be given theirs by Unit::parameter";
        return Err(Error::Usage(format!("Model::new: {why}")));
    }
    Ok(())
}

/// Refuses a unit, or else the loss, that computes with a variable that it was not given: nobody would train it, nor make it the same on all
/// ranks. What another unit has frozen is the same, and wants no gradient.
fn check_strays(units: &[Unit], user: Option<&Unit>, strays: &[Tensor]) -> Result<()> {
    for stray in strays {
        let mut parameters = units.iter().flat_map(|unit| &unit.parameters);
        let name = match parameters.find(|one| one.var.id() == stray.id()) {
            Some(held) if !held.is_trained => continue,
            Some(held) => held.name.as_str(),
            None => "a variable",
        };
        let (user, given) = match user {
            Some(unit) => (format!("unit {}", unit.name), "it by Unit::parameter or Unit::frozen"),
            None => ("the loss".to_owned(), "a unit that does so"),
        };
        let what = format!("{user} computes with {name} of shape {:?}", stray.dims());
        return Err(Error::Usage(format!("backward: {what}: must be given to {given}, or be detached")));
    }
    Ok(())
}
