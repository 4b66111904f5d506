//! Communication hooks: how gradients travel, as values that a user can replace. A hook says what travels, makes it and reads it; it
//! moves nothing itself, so that the engine overlaps it like its own reduction.

mod carry;
mod int8;
#[cfg(test)]
mod tests;
mod two_steps;

pub(crate) use carry::{receive, send};
pub use int8::Int8;
pub use two_steps::{AllReduce, Bf16, F16, ReduceScatter};

use std::fmt;

use phalanx_core::DType;

/// A way for gradients to travel.
///
/// Gradients come in `f32`: of a sharded unit a row for each rank, the padding zero, of which this rank gets its own reduced; of a bucket
/// of [`Ddp`](crate::Ddp) one row for all, of which every rank gets all reduced. Ranks must have the same hook.
///
/// Where gradients are reduced in another type a hook is refused by the name of the parameter. A sharded model of any types takes one once its
/// policy, or its unit, reduces in `f32` ([`Policy::reduce`](crate::Policy::reduce)). [`Ddp`](crate::Ddp) reduces gradients in the type of their
/// parameter, and takes one only where all of them are `f32`: with a parameter of `f64` it takes none, which would lose half of each gradient.
///
/// ```
/// use phalanx_comm::Threads;
/// use phalanx_core::DType;
/// use phalanx_fsdp::hooks::{GradientHook, Size, Wire};
/// use phalanx_fsdp::{Gradient, ParamSpec, Policy, Sharded, UnitSpec};
///
/// /// Each gradient's sign travels, as one byte: a quarter of `f32`, in worlds of up to 127 ranks.
/// #[derive(Debug)]
/// struct Signs;
///
/// impl GradientHook for Signs {
///     fn wire(&self, size: Size) -> Wire {
///         if size.is_sharded { Wire::ReduceScatter(DType::I8) } else { Wire::AllReduce(DType::I8) }
///     }
///
///     fn pack(&mut self, _: usize, _: Size, gradients: &[f32], wire: &mut [u8]) {
///         for (to, from) in wire.iter_mut().zip(gradients) {
///             *to = (i8::from(*from > 0.0) - i8::from(*from < 0.0)) as u8;
///         }
///     }
///
///     fn unpack(&mut self, _: usize, size: Size, wire: &[u8], reduced: &mut [f32]) {
///         for (to, from) in reduced.iter_mut().zip(wire) {
///             *to = f32::from(*from as i8) / size.ranks as f32;
///         }
///     }
/// }
///
/// let averages = Threads::new(2).run(|group| {
///     let slopes = [[0.5_f32, -0.5, 0.0, 0.0], [7.0, -7.0, 7.0, -7.0]][group.rank()];
///     let layer = UnitSpec::new("layer", vec![ParamSpec::new("weight", &[2, 2], DType::F32)]);
///     let mut model = Sharded::new(group, vec![layer], Policy::default())?;
///     model.set_hook(Some(Box::new(Signs)))?;
///     let weight = model.param("layer", "weight").expect("it was just named");
///     model.load_full(weight, &[0.0_f32; 4])?;
///
///     model.before_forward(0)?;
///     model.after_forward(0)?;
///     model.before_backward(0)?;
///     model.gradients(0, &[Gradient::new(0, &slopes)])?;
///     model.finish_backward()?;
///     let (_, gradient) = model.update::<f32>(weight)?;
///     Ok::<_, phalanx_core::Error>(gradient.unwrap_or_default().to_vec())
/// })?;
/// assert_eq!(averages, [Ok(vec![1.0, -1.0]), Ok(vec![0.5, -0.5])]);
/// # Ok::<(), phalanx_core::Error>(())
/// ```
pub trait GradientHook: fmt::Debug + Send {
    /// What travels for a reduction of this size. It is asked before gradients are packed, and may be something else the next time: on all
    /// ranks alike.
    fn wire(&self, size: Size) -> Wire;

    /// Makes what travels of this rank's gradients. `unit` tells what is reduced time and again apart.
    fn pack(&mut self, unit: usize, size: Size, gradients: &[f32], wire: &mut [u8]);

    /// Makes the reduced gradients of what came, which is what was said to travel when they were packed: the average over all ranks, as a rule.
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
