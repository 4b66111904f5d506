//! How Phalanx moves bytes on the CPU: links and windows, waiting, and the lane that plays operations in order.
//!
//! Today it holds the in-process world, whose ranks are threads: [`Threads`], the door that keeps strangers out of a
//! job: [`secure`], and how ranks that share a store become a world: [`rendezvous`].
#![forbid(unsafe_code)]

mod bell;
mod fate;
mod host;
mod lane;
mod memory;
mod patience;
mod post;
pub mod rendezvous;
mod roll;
pub mod secure;
mod slot;
mod stage;
pub mod store;
mod threads;

pub use threads::Threads;
