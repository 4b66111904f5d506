//! How Phalanx moves bytes on the CPU: links and windows, waiting, and the lane that plays operations in order.
//!
//! Today it holds the in-process world, whose ranks are threads: [`Threads`].
#![forbid(unsafe_code)]

mod bell;
mod fate;
mod host;
mod lane;
mod memory;
mod patience;
mod post;
mod roll;
mod slot;
mod stage;
pub mod store;
mod threads;

pub use threads::Threads;
