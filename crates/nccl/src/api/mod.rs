//! What is asked of NCCL, of the CUDA driver and of the process: three traits, and the numbers they speak in. Nothing here runs.
//!
//! All codes, types and operations are integers behind newtypes, never enums: a library newer than this crate may answer with
//! values that are not known here, and that must be no more than an unknown number.

#![forbid(unsafe_code)]

mod code;
mod config;
mod cuda;
mod encoding;
mod handle;
mod nccl;
mod process;

pub use code::{CudaCode, Status};
pub use config::CommConfig;
pub use cuda::{Argument, Cuda, DeviceInfo, EventKind, Grid, HostCall, KernelId, MemoryInfo, Shared};
pub use encoding::{DataType, Encoding, RedOp, Reducer};
pub use handle::{Comm, Device, Event, Registration, Span, Stream, UniqueId, Version, Window};
pub use nccl::{Growth, MemoryStat, Nccl, Route, Scalar, Transfer};
pub use process::{Bell, Process};
