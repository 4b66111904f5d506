//! The installed libraries: found and opened at run time, each function there or not.
//!
//! Nothing of theirs is linked, so this crate builds without them, and says what it tried where they are not. Codes, types and
//! operations cross as plain numbers, configurations as bytes with a version.
//!
//! *Unsafety.* The functions are called with the signatures of their headers, with handles that were given out and not taken back,
//! and with memory whose bounds were checked. What cannot be checked is said on the types: memory must outlast what was submitted
//! with it.

mod cuda;
mod machine;
mod nccl;
mod nvrtc;
mod program;
mod python;
mod search;
mod shared;
mod table;

pub use cuda::CudaDriver;
pub use machine::Machine;
pub use nccl::NcclLibrary;
pub use nvrtc::Nvrtc;
pub use program::{Origin, Program};
pub use search::Search;
pub use table::Absent;
