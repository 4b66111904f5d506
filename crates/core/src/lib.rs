//! The pure core of Phalanx: everything that can be decided from numbers alone.
#![forbid(unsafe_code)]

mod dtype;
mod element;
pub mod reduce;

pub use dtype::{Class, DType};
pub use element::{Bool, Element, F8E4M3Fnuz, F8E5M2Fnuz};
pub use reduce::ReduceOp;
