//! A simulator of CUDA and NCCL: several ranks in one process, without a card.
//!
//! Nothing runs when it is submitted. Streams are queues, and a scheduler that one seed decides picks what runs next from all that
//! streams and events allow, between steps of the ranks' threads, which play one at a time in virtual time. Vector clocks tell of every
//! two uses of the same bytes that nothing orders, whether or not they went well this time. What is freed is poisoned and never
//! given out again. Collectives move real data, and what the ranks called is compared.
//!
//! What it cannot show: kernels that need multiprocessors which others hold, what the driver orders by itself, captures, how the real
//! library aborts, the rounding of its algorithms, and speed.

#![forbid(unsafe_code)]

mod collective;
mod comm;
mod cuda;
mod draw;
mod engine;
mod fault;
mod finding;
mod kernel;
mod known;
mod memory;
mod nccl;
mod order;
mod pin;
mod process;
mod stage;
mod store;
mod world;

#[cfg(test)]
mod tests;

pub use cuda::SimCuda;
pub use fault::{Fault, Plant};
pub use finding::{Access, Finding};
pub use kernel::{Operand, Twin};
pub use nccl::SimNccl;
pub use process::SimProcess;
pub use world::{Outcome, SimRank, Simulation};
