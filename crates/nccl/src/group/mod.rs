//! The process group over NCCL.
//!
//! A communicator has a lane: one thread that makes all calls of NCCL for it. What a program submits, the lane puts on a stream of its
//! own, between what the program's stream has to do before and the event of the end, in the order in which a thread of the program begins what
//! it does in all groups. Memory stays until that event was observed.
//! One more thread watches: it ends operations in time, asks communicators how they are, tells the other ranks how this one stands and
//! compares. After a failure everything ends in errors at once, and communicators are aborted from threads that nobody waits for; memory stays
//! until those are done. Whoever wants to see the end of a group waits for it.

#![forbid(unsafe_code)]

mod adding;
mod backend;
mod batch;
mod device;
mod division;
mod ending;
mod failure;
mod flight;
mod freeing;
mod hall;
mod held;
mod issue;
mod job;
mod joining;
mod keys;
mod lane;
mod late;
mod meeting;
mod memory;
mod nan;
mod options;
mod order;
mod pause;
mod plan;
mod registered;
mod remains;
mod settings;
mod signals;
mod stack;
mod staging;
mod standing;
mod votes;
mod watch;

pub use backend::NcclBackend;
pub use device::{Batch, DeviceGroup, DeviceWork};
pub use keys::torch_keys;
pub use memory::{DeviceBuffer, PinnedBuffer};
pub use options::NcclOptions;
pub use registered::Registered;
pub use settings::{Effect, SETTINGS};
pub use signals::TorchJob;
pub use stack::Stack;
