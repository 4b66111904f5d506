//! A model without a framework, trained sharded and alone: the engine's promises over real groups.
#![forbid(unsafe_code)]

mod bits;
mod clip;
mod company;
mod counts;
mod ddp;
mod doing;
mod draw;
mod extension;
mod failures;
mod hooks;
mod memory;
mod model;
mod numbers;
mod overlap;
mod parity;
mod random;
mod train;
mod walks;
