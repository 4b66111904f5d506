//! Optimizers over this rank's parts of parameters: plain slices of `f32`, whatever the model computes in.

mod adam;
mod descent;
mod memory;
mod schedule;
#[cfg(test)]
mod tests;

pub use adam::AdamW;
pub use descent::Sgd;
pub use schedule::Schedule;

use crate::error::{Error, Result};
use crate::model::Model;

/// Changes a model's parameters by their gradients.
pub trait Optimizer {
    /// One step with this learning rate.
    ///
    /// Under [`Single`](crate::Single) parameters without a gradient stay as they are. Among ranks ([`FullyShard`](crate::FullyShard),
    /// [`Ddp`](crate::Ddp)) every trained parameter has a gradient once a backward was exchanged: zero where no rank brought one, so that decay
    /// and what an optimizer remembers of earlier gradients change it. [`Model::unused`] names what got none on this rank.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`](crate::Error::Usage) for a rate, or a setting of its own, with which no step can be made; where what it remembers is of other parts than the model has, as where
    /// [`FullyShard`](crate::FullyShard) divides it among more ranks or fewer than before; those of the model. Nothing but the parts is compared:
    /// where they are the same, under [`Ddp`](crate::Ddp) or among as many ranks, an optimizer that was kept while the model went back to a
    /// checkpoint steps on with what it remembers of lost steps. It is made anew, or set from the checkpoint, whenever the model is.
    fn step(&mut self, model: &mut Model, rate: f64) -> Result<()>;

    /// What it remembers of each part, in the order of [`Model::parts`]: the name of the quantity, and as many values as the part has. What it
    /// remembered of another model's parts is forgotten: all values are zero then, and so is the number of steps, to be set from a checkpoint and
    /// [resumed](Optimizer::resume) after that.
    fn state(&mut self, model: &Model) -> Vec<(&'static str, Vec<&mut [f32]>)>;

    /// How many steps it has made.
    fn steps(&self) -> u64;

    /// Takes up after so many steps, with a [`state`](Optimizer::state) that is set as well.
    fn resume(&mut self, steps: u64);
}

/// Refuses a learning rate that would make every parameter something else than a number, or climb.
fn check_rate(rate: f64) -> Result<()> {
    if rate.is_finite() && rate >= 0.0 {
        return Ok(());
    }
    Err(Error::Usage(format!("step: rate is {rate}: must be a number of at least 0")))
}
