//! Conformance: one list for every implementation of NCCL and CUDA. It runs on the simulator here, over as many seeds as
//! `PHALANX_TEST_SEEDS` says.

mod device;
mod host;
mod known;
mod list;
#[path = "../jobs/memory.rs"]
mod memory;
mod nan;
#[path = "../jobs/seats.rs"]
mod seats;
mod setting;
mod split;
