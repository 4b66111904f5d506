//! Training of candle models by many ranks: operations with gradients, units that are sharded or replicated, optimizers, a small
//! GPT. Not here: what ranks exchange and when, which is `phalanx-fsdp`.
#![forbid(unsafe_code)]

mod ddp;
mod error;
mod fully_shard;
pub mod gpt;
mod model;
pub mod ops;
mod optimizer;
mod sharing;
mod single;
mod storage;
mod strategy;
mod tape;
mod unit;

pub use ddp::Ddp;
pub use error::{Error, Result};
pub use fully_shard::FullyShard;
pub use model::Model;
pub use optimizer::{AdamW, Optimizer, Schedule, Sgd};
pub use phalanx_fsdp::{DdpOptions, Groups, Offload, Part, Policy, Reshard, hooks};
pub use single::Single;
pub use strategy::{Glance, Held, Look, Strategy};
pub use unit::{Parameter, Unit};
