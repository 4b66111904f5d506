//! A model as a list of units: modules that run one after the other, each with its parameters.

use candle_core::{DType, Device, Module, Var};
use phalanx_core::DType as Wire;

use crate::error::{Error, Result};

/// A part of a model that runs as a whole: an embedding, a block, a head. What one returns is the next one's input.
#[must_use]
pub struct Unit {
    pub(crate) name: String,
    pub(crate) module: Box<dyn Module>,
    pub(crate) parameters: Vec<Parameter>,
    /// Of units before it.
    pub(crate) borrowed: Vec<Borrowed>,
    pub(crate) recomputes: bool,
}

/// One variable of a unit, by its name in the model.
#[derive(Clone, Debug)]
pub struct Parameter {
    pub(crate) name: String,
    pub(crate) var: Var,
    pub(crate) is_trained: bool,
}

/// A parameter that a unit uses though another one holds it.
#[derive(Clone, Debug)]
pub(crate) struct Borrowed {
    /// The unit that holds it.
    pub(crate) owner: usize,
    /// Its number there.
    pub(crate) at: usize,
    pub(crate) var: Var,
}

impl Unit {
    /// A unit without parameters yet.
    pub fn new(name: impl Into<String>, module: impl Module + 'static) -> Unit {
        Unit { name: name.into(), module: Box::new(module), parameters: vec![], borrowed: vec![], recomputes: false }
    }

    /// Adds a parameter that is trained. The module must use this very variable, not a copy. A variable of a unit before this one may be
    /// given to this one as well (an output layer that is the embedding, say): the first unit holds it, under the name that it has there, and
    /// keeps it until the last one has run.
    ///
    /// A unit is given every variable that its module computes with, here or as [`frozen`](Unit::frozen): one that was forgotten is refused in
    /// [backward](crate::Model::backward), unless the module [detaches](Var::as_detached_tensor) it. One of another unit's is refused in forward where
    /// the model is [sharded](crate::FullyShard): outside that unit it has no memory.
    pub fn parameter(mut self, name: impl Into<String>, var: &Var) -> Unit {
        self.parameters.push(Parameter { name: name.into(), var: var.clone(), is_trained: true });
        self
    }

    /// Adds a parameter that stays as it is.
    pub fn frozen(mut self, name: impl Into<String>, var: &Var) -> Unit {
        self.parameters.push(Parameter { name: name.into(), var: var.clone(), is_trained: false });
        self
    }

    /// Adds parameters that are trained, in this order, which is to be the same on all ranks. A `VarMap` of candle-nn's has another order in
    /// every process: collect its variables into a `BTreeMap` first. Make one map for each unit, and its module by a `VarBuilder` of that.
    ///
    /// ```
    /// use std::collections::{BTreeMap, HashMap};
    ///
    /// use candle_core::{DType, Device, Tensor, Var};
    /// use phalanx_candle::{Unit, ops};
    ///
    /// # fn main() -> candle_core::Result<()> {
    /// let weight = Var::ones((2, 4), DType::F32, &Device::Cpu)?;
    /// let used = weight.clone();
    /// let module = move |x: &Tensor| ops::linear(x, &used);
    /// // What `map.data().lock().unwrap().clone()` gives.
    /// let map = HashMap::from([("head.weight".to_owned(), weight)]);
    ///
    /// let vars: BTreeMap<_, _> = map.into_iter().collect();
    /// let unit = Unit::new("head", module).parameters(vars);
    /// # let _ = unit;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// candle-nn's fused norms and softmax, and its modules that run them, have no gradient: [`ops`](crate::ops) has others.
    pub fn parameters<N: Into<String>>(self, vars: impl IntoIterator<Item = (N, Var)>) -> Unit {
        vars.into_iter().fold(self, |unit, (name, var)| unit.parameter(name, &var))
    }

    /// Whether backward runs this unit once more rather than that forward keeps what it has computed.
    ///
    /// The module must give the same for the same input both times. One that draws numbers anew, as dropout does its mask, would have the
    /// gradients of another output than the one that went into the loss, and nobody would notice: such a module has to draw the same again.
    pub fn recompute(mut self, recomputes: bool) -> Unit {
        self.recomputes = recomputes;
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The variables that it uses: its own, and after them those of other units.
    pub(crate) fn vars(&self) -> impl Iterator<Item = &Var> {
        let own = self.parameters.iter().map(|parameter| &parameter.var);
        own.chain(self.borrowed.iter().map(|borrowed| &borrowed.var))
    }
}

impl Parameter {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The full shape.
    pub fn shape(&self) -> &[usize] {
        self.var.dims()
    }

    /// What ranks call its type.
    pub(crate) fn wire_type(&self) -> Result<Wire> {
        match (self.var.dtype(), self.var.device()) {
            (DType::F32, Device::Cpu) => Ok(Wire::F32),
            (DType::BF16, Device::Cpu) => Ok(Wire::BF16),
            _ => Err(self.unfit()),
        }
    }

    pub(crate) fn unfit(&self) -> Error {
        let (dtype, place) = (self.var.dtype(), self.var.device().location());
        Error::Usage(format!("{} is {dtype:?} on {place:?}: must be f32 or bf16 on the CPU", self.name))
    }
}

impl std::fmt::Debug for Unit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Unit").field("name", &self.name).field("parameters", &self.parameters).finish()
    }
}
