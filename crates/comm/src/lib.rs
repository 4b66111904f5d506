//! How Phalanx moves bytes on the CPU: links and windows, waiting, and the lane that plays operations in order.
//!
//! Today it holds the in-process world, whose ranks are threads: [`Threads`], and the door that keeps strangers out of a
//! job: [`secure`].
#![forbid(unsafe_code)]

mod bell;
mod fate;
mod host;
mod lane;
mod memory;
mod patience;
mod post;
mod roll;
pub mod secure;
mod slot;
mod stage;
pub mod store;
mod threads;

pub use threads::Threads;
