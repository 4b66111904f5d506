//! A module between its uses: with its full parameters while it is used, and without any memory for them else.

use std::any::Any;

use burn::module::{Module, ParamId};
use burn::tensor::TensorData;
use burn_optim::ModuleOptimizer;
use burn_optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use phalanx_core::{Error, Result};

use crate::units::UnitOptions;
use crate::values;
use crate::walk::{self, Parameter, Survey, Values};

/// A unit of any module.
pub(crate) trait Held: Any {
    fn name(&self) -> &str;

    /// What it consists of.
    fn survey(&self) -> &Survey;

    /// Its parameters, trained and frozen.
    fn parameters(&self) -> &[Parameter];

    /// What the unit says for itself.
    fn options(&self) -> UnitOptions;

    /// Hands out the values that its parameters have, and gives up their memory. What is not trained is changed before as `share` does.
    fn hand_over(
        &mut self,
        take: &mut dyn FnMut(usize, TensorData) -> Result<()>,
        share: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<()>;

    /// Gives its parameters these values, in full.
    fn fill(&mut self, values: &mut Values<'_>) -> Result<()>;

    /// Gives up the memory of full parameters.
    fn empty(&mut self);

    fn is_filled(&self) -> bool;

    /// Has an optimizer step over this rank's rows of the parameters, each with its gradient; what it makes of them, by number.
    fn step(
        &self,
        parts: Vec<Option<(TensorData, TensorData)>>,
        optimizer: &mut ModuleOptimizer,
        rate: ModuleLearningRate,
    ) -> Result<Vec<(usize, Vec<f32>)>>;
}

/// A unit of this module.
#[derive(Debug)]
pub(crate) struct Typed<M> {
    name: String,
    options: UnitOptions,
    survey: Survey,
    /// The module without memory for its parameters, once they are handed over.
    frame: M,
    full: Option<M>,
}

impl<M: Module> Typed<M> {
    pub(crate) fn new(name: String, module: M, options: UnitOptions) -> Typed<M> {
        Typed { name, options, survey: walk::survey(&module), frame: module, full: None }
    }

    /// The module with its full parameters, from which no graph begins.
    pub(crate) fn full(&self) -> Result<&M> {
        self.full.as_ref().ok_or_else(|| Error::setup(format!("unit {:?}", self.name), "it is not gathered"))
    }

    /// The same where a graph begins from each of them.
    pub(crate) fn tracked(&self) -> Result<M> {
        Ok(walk::tracked(self.full()?.clone(), &self.survey.parameters))
    }

    /// A module of its own with these values.
    pub(crate) fn with(&self, values: &mut Values<'_>) -> Result<M> {
        let module = walk::replace(self.frame.clone(), &self.survey.parameters, values)?;
        Ok(walk::tracked(module, &self.survey.parameters))
    }
}

impl<M: Module + 'static> Held for Typed<M> {
    fn name(&self) -> &str {
        &self.name
    }

    fn survey(&self) -> &Survey {
        &self.survey
    }

    fn parameters(&self) -> &[Parameter] {
        &self.survey.parameters
    }

    fn options(&self) -> UnitOptions {
        self.options
    }

    fn hand_over(
        &mut self,
        take: &mut dyn FnMut(usize, TensorData) -> Result<()>,
        share: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let parameters = &mut self.survey.parameters;
        let mut take = |at: usize, data| match parameters[at].is_trained {
            true => take(at, data),
            false => take(at, walk::changed(data, share)?),
        };
        walk::read(&self.frame, parameters, vec![true; parameters.len()], &mut take)?;
        let frame = walk::share(self.frame.clone(), parameters, share)?;
        let ids = parameters.iter().map(|one| walk::named_id(&format!("{}.{}", self.name, one.name)));
        let ids: Vec<ParamId> = ids.collect();
        self.frame = walk::frame(frame, parameters, &ids);
        parameters.iter_mut().zip(ids).for_each(|(one, id)| one.id = id);
        Ok(())
    }

    fn fill(&mut self, values: &mut Values<'_>) -> Result<()> {
        self.full = Some(walk::replace(self.frame.clone(), &self.survey.parameters, values)?);
        Ok(())
    }

    fn empty(&mut self) {
        self.full = None;
    }

    fn is_filled(&self) -> bool {
        self.full.is_some()
    }

    fn step(
        &self,
        mut parts: Vec<Option<(TensorData, TensorData)>>,
        optimizer: &mut ModuleOptimizer,
        rate: ModuleLearningRate,
    ) -> Result<Vec<(usize, Vec<f32>)>> {
        let is_stepped: Vec<bool> = parts.iter().map(Option::is_some).collect();
        let (module, gradients) =
            walk::with_gradients(self.frame.clone(), &self.survey.parameters, &mut |at| parts[at].take());
        let module = optimizer.step(rate, module, gradients);
        let mut stepped = vec![];
        walk::read(&module, &self.survey.parameters, is_stepped, &mut |at, data| {
            stepped.push((at, values::floats(&self.survey.parameters[at].name, data)?));
            Ok(())
        })?;
        Ok(stepped)
    }
}
