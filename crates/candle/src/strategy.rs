//! Where a model's parameters are while its units run, and what becomes of their gradients: the seam between a model and the ways of
//! training it.

use std::any::Any;
use std::time::Duration;

use candle_core::{DType, Tensor};
use phalanx_fsdp::Part;

use crate::error::{Error, Result};
use crate::unit::Unit;

/// Looks at the values of one part, by its number.
pub type Look<'a> = dyn FnMut(usize, &[f32]) + 'a;

/// The same of values to write, with their gradient where there is one.
pub type Update<'a> = dyn FnMut(usize, &mut [f32], Option<&[f32]>) + 'a;

/// Bytes of parameters and gradients that this rank holds, without what the tensors of a forward pass take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Parts of parameters that this rank updates, and their gradients.
    pub lasting: usize,
    /// The most that full parameters and gradients on their way took besides, with memory that is kept for the next of them.
    pub passing_peak: usize,
}

/// A way of training: what is done with a unit's parameters around its forward and backward.
///
/// [`Model`](crate::Model) calls it in this order: `adopt` once; for each step `before_forward` and `after_forward` of every unit in
/// order, `before_backward` and `gradients` in reverse order, `finish_backward`. A unit whose parameters others use as well is entered
/// before them and left after them. `refuse` is called in place of all that for units which are no model.
///
/// # Errors
///
/// Those of the operations among ranks that a way of training is made of, of the memory that it needs, and of candle.
#[expect(clippy::missing_errors_doc, reason = "the trait says it once for all")]
pub trait Strategy: Any {
    /// Takes over the parameters of these units, with the values that they have.
    fn adopt(&mut self, units: &[Unit]) -> Result<()>;

    /// Tells other ranks, which are about to [adopt](Strategy::adopt) theirs, that this one refuses its units. Gives back why.
    fn refuse(&self, why: Error) -> Error {
        why
    }

    /// Makes the parameters of a unit usable. Nothing is to be done where they always are.
    fn before_forward(&mut self, _units: &[Unit], _unit: usize) -> Result<()> {
        Ok(())
    }

    /// A unit is not used until backward.
    fn after_forward(&mut self, _units: &[Unit], _unit: usize) -> Result<()> {
        Ok(())
    }

    /// Makes the parameters of a unit usable again.
    fn before_backward(&mut self, _units: &[Unit], _unit: usize) -> Result<()> {
        Ok(())
    }

    /// Takes the gradients of a unit's parameters, in their order, where there are any.
    fn gradients(&mut self, units: &[Unit], unit: usize, gradients: Vec<Option<Tensor>>) -> Result<()>;

    /// Backward is over: the gradients of this rank's parts must be there.
    fn finish_backward(&mut self, units: &[Unit]) -> Result<()>;

    /// Whether gradients are exchanged as they come, or summed up on this rank for a later backward that is.
    fn set_sync(&mut self, syncs: bool);

    /// Whether a backward follows on the next forward.
    fn set_training(&mut self, trains: bool);

    /// This rank's parts of all parameters, in the order of units.
    fn parts(&self) -> &[Part];

    /// The type that the model's output is cast to; none where it stays as it is.
    fn output_dtype(&self) -> Option<DType> {
        None
    }

    /// Shows this rank's values of each part. No other rank need do the same.
    fn look(&self, units: &[Unit], look: &mut Look<'_>) -> Result<()>;

    /// Shows this rank's values of each part and, where there is one, their gradient; the values may be written, so that all ranks call this.
    fn update(&mut self, units: &[Unit], step: &mut Update<'_>) -> Result<()>;

    /// Multiplies all gradients such that their norm over all ranks is at most this; the norm before.
    fn clip(&mut self, most: f64) -> Result<f64>;

    /// Drops all gradients, those as well that wait on this rank to be exchanged: between backwards, and after one that failed half-way.
    fn zero_gradients(&mut self);

    /// The names of trained parameters that got no gradient.
    fn unused(&self) -> Vec<String>;

    /// What this rank holds.
    fn held(&self) -> Held;

    /// How long this rank has waited for others so far.
    fn waited(&self) -> Duration;
}
