//! What forward has run, unit by unit, and the way back through it. Each unit is a graph of its own between what it was given and what it
//! returned, so there is an exact moment before and after the backward of every unit.

use std::any::Any;

use burn::module::Module;
use burn::tensor::{Gradients, TensorData};
use phalanx_core::{Error, Result};

use crate::flow::Flow;
use crate::held::{Held, Typed};
use crate::walk;

/// One use of a unit.
pub(crate) trait Segment {
    /// The unit's number.
    fn unit(&self) -> usize;

    /// Takes the gradients of what the unit returned out of what a backward has left; whether there were any.
    fn collect(&mut self, from: &mut Gradients) -> bool;

    /// Runs the unit backwards, whose full parameters are there.
    fn backward(self: Box<Self>, held: &dyn Held) -> Result<Backward>;
}

/// What a unit's backward leaves; nothing where no gradient came to what it returned.
#[derive(Default)]
pub(crate) struct Backward {
    /// For the units before.
    pub(crate) left: Option<Gradients>,
    /// The gradients of its parameters, by number.
    pub(crate) of_parameters: Vec<(usize, TensorData)>,
}

/// A use of a unit of this module.
pub(crate) struct Passed<M, I, O: Flow, F> {
    pub(crate) unit: usize,
    /// What it returned, cut off.
    pub(crate) returned: O,
    pub(crate) gradient: O::Gradient,
    pub(crate) is_reached: bool,
    pub(crate) way: Way<M, I, O, F>,
}

/// How its graph is come by.
pub(crate) enum Way<M, I, O, F> {
    /// It is kept from forward on, and with it full parameters are.
    Kept { module: M, output: O },
    /// The unit is run once more.
    Again { input: I, forward: F },
}

impl<M: Module + 'static, I: Flow, O: Flow, F: Fn(&M, I) -> O> Segment for Passed<M, I, O, F> {
    fn unit(&self) -> usize {
        self.unit
    }

    fn collect(&mut self, from: &mut Gradients) -> bool {
        let are_there = self.returned.collect(from, &mut self.gradient);
        self.is_reached |= are_there;
        are_there
    }

    fn backward(self: Box<Self>, held: &dyn Held) -> Result<Backward> {
        if !self.is_reached {
            return Ok(Backward::default());
        }
        let (module, output) = match self.way {
            Way::Kept { module, output } => (module, output),
            Way::Again { input, forward } => {
                let typed = (held as &dyn Any).downcast_ref::<Typed<M>>();
                let module = typed.ok_or_else(|| Error::setup(held.name(), "is of another module"))?.tracked()?;
                let output = forward(&module, input);
                if !output.is_same(&self.returned) {
                    let expected = "must return the same for the same input, as it is run again in backward: one that draws numbers, \
                                    as dropout does, is added with Reshard::No";
                    return Err(Error::usage("backward", "unit", format!("{:?}", held.name()), expected));
                }
                (module, output)
            }
        };
        let Some(seed) = output.seed(self.gradient) else { return Ok(Backward::default()) };
        let mut left = seed.backward();
        let of_parameters = walk::gradients(&module, held.parameters(), &mut left)?;
        Ok(Backward { left: Some(left), of_parameters })
    }
}

/// Hands each use of a unit the gradients of what it returned; whether there were any.
pub(crate) fn hand_back(tape: &mut [Box<dyn Segment>], left: &mut Gradients) -> bool {
    let mut any = false;
    for segment in tape {
        any |= segment.collect(left);
    }
    any
}
