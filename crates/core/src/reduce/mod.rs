//! Reductions over untyped bytes: what may be combined with what, to the bit, and the kernels that do it.
//!
//! Every operation here is commutative to the bit: for any two operands, signed zeros and NaNs included, `a ∘ b` and
//! `b ∘ a` are the same bytes. Folding pairwise therefore needs no notion of a left and a right operand. What is not
//! free is *association*: floating sums depend on the order in which operands meet, so a schedule must keep that order
//! the same on every rank, and [`combine`] takes its operands in order.
//!
//! Every NaN that a reduction computes is the canonical quiet NaN of its type (positive, empty payload), because which
//! payload survives an addition differs between instruction sets and between a vector body and its scalar tail.
//!
//! Bytes may start at any address. Nothing here allocates.

mod beside;
mod both;
mod combine;
mod fault;
mod float16;
mod fold;
mod group;
#[cfg(target_arch = "x86_64")]
mod group_v3;
#[cfg(target_arch = "x86_64")]
mod group_v4;
mod isa;
mod lane;
mod loops;
mod number;
mod op;
mod past;
mod resolve;
#[cfg(test)]
mod scalar;
mod scale;
#[cfg(test)]
mod tests;

pub(crate) use beside::{Beside, combine_beside};
pub(crate) use both::combine_both;
pub use combine::{combine, combine_in_place};
pub use fault::{ReduceError, Unsupported};
pub use fold::fold;
pub use op::ReduceOp;
pub(crate) use past::combine_past_caches;
pub use scale::{Factor, finish_avg, scale};
