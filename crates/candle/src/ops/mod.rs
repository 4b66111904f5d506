//! Operations that candle has no gradient for, or only a slow one. candle's own fused norms, softmax and rope have no backward and
//! cut the gradient without a word.

mod cross_entropy;
mod dispatch;
mod gelu;
mod lanes;
mod linear;
mod norm;
mod real;
mod rope;
mod slices;
mod softmax;
#[cfg(test)]
mod tests;

pub use cross_entropy::cross_entropy;
pub use gelu::gelu;
pub use linear::linear;
pub use norm::{layer_norm, rms_norm};
pub use rope::{rope, rope_tables};
pub use softmax::{causal_softmax, softmax};
