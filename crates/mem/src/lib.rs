//! Host memory of Phalanx: the one home of host-memory `unsafe`.

mod allocation;
mod buffer;

pub use allocation::OutOfMemory;
pub use buffer::{Buffer, CastError, SplitError};
