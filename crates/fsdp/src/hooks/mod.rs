//! Communication hooks: how gradients travel, as values that a user can replace. A hook says what travels, makes it and reads it; it
//! moves nothing itself, so that the engine overlaps it like its own reduction.

mod carry;
mod int8;
mod plain;
mod sixteen;
#[cfg(test)]
mod tests;

pub(crate) use carry::{receive, send};
pub use int8::Int8;
pub use plain::{AllReduce, ReduceScatter};
pub use sixteen::{Bf16, F16};

use std::fmt;

use phalanx_core::DType;

/// A way for gradients to travel.
///
/// Gradients come in `f32`: of a sharded unit a row for each rank, the padding zero, of which this rank gets its own reduced; of a bucket
/// of [`Ddp`](crate::Ddp) one row for all, of which every rank gets all reduced. Ranks must have the same hook.
pub trait GradientHook: fmt::Debug + Send {
    /// What travels for a reduction of this size.
    fn wire(&self, size: Size) -> Wire;

    /// Makes what travels of this rank's gradients. `unit` tells what is reduced time and again apart.
    fn pack(&mut self, unit: usize, size: Size, gradients: &[f32], wire: &mut [u8]);

    /// Makes the reduced gradients of what came: the average over all ranks, as a rule.
    fn unpack(&mut self, unit: usize, size: Size, wire: &[u8], reduced: &mut [f32]);

    /// The type in which devices do the same: they cast gradients to it, sum them as [`wire`](GradientHook::wire) says between the divisions of
    /// [`Factors::two_steps`](crate::Factors::two_steps), and cast them back. None, as it is unless a hook says otherwise, where that is not all.
    fn on_devices(&self) -> Option<DType> {
        None
    }
}

/// What one reduction is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// How many ranks there are.
    pub ranks: usize,
    /// Which of them this is.
    pub rank: usize,
    /// Elements of a row.
    pub len: usize,
    /// Whether there is a row for each rank, of which each gets its own.
    pub is_sharded: bool,
}

/// What travels, and how. What is packed is this rank's input; what is unpacked is its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wire {
    /// As many elements as there are gradients, whose sum every rank gets.
    AllReduce(DType),
    /// As many, of whose sum each rank gets its row; for sharded units only.
    ReduceScatter(DType),
    /// So many bytes for each rank, of which each gets those that are its own from all; for sharded units only.
    AllToAll(usize),
    /// So many bytes, which every rank gets from all.
    AllGather(usize),
}

impl Size {
    /// Elements that this rank brings.
    pub fn input_len(&self) -> usize {
        self.len * if self.is_sharded { self.ranks } else { 1 }
    }

    /// Where this rank's row lies among them; all where there is one.
    pub fn own(&self) -> std::ops::Range<usize> {
        if self.is_sharded { self.rank * self.len..(self.rank + 1) * self.len } else { 0..self.len }
    }
}
