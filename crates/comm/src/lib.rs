//! How Phalanx moves bytes on the CPU: links and windows, waiting, and the lane that plays operations in order.
//!
//! Today it holds the worlds of one host: ranks that are threads ([`Threads`]), and ranks that are processes
//! (`Processes`, on Linux).
#![forbid(unsafe_code)]

mod bell;
mod equipment;
mod fate;
#[cfg_attr(not(target_os = "linux"), path = "no_futex.rs")]
mod futex;
mod host;
mod lane;
#[cfg(target_os = "linux")]
mod local;
mod memory;
mod patience;
mod post;
#[cfg(target_os = "linux")]
mod processes;
mod roll;
mod slot;
mod stage;
mod threads;
mod verdict;

#[cfg(target_os = "linux")]
pub use local::Door;
#[cfg(target_os = "linux")]
pub use processes::Processes;
pub use threads::Threads;
