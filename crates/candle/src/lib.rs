//! Training of candle models by many ranks: operations with gradients, units that are sharded or replicated, optimizers, a small
//! GPT. Not here: what ranks exchange and when, which is `phalanx-fsdp`.
//!
//! A model is a list of [units](Unit), each a module with the variables that it computes with. Two ranks, threads here, hold half of this one
//! each; with [`Single`] or [`Ddp`] in place of [`FullyShard`] nothing else changes:
//!
//! ```
//! use candle_core::{DType, Device, Tensor, Var};
//! use phalanx_candle::ops::linear;
//! use phalanx_candle::{FullyShard, Model, Optimizer, Policy, Result, Sgd, Unit};
//! use phalanx_comm::Threads;
//! use phalanx_core::Group;
//!
//! /// One step; the rows of the weight that this rank holds, after it.
//! fn train(group: Group) -> Result<Vec<f32>> {
//!     let weight = Var::ones((2, 2), DType::F32, &Device::Cpu)?;
//!     let used = weight.clone();
//!     let unit = Unit::new("layer", move |x: &Tensor| linear(x, &used)).parameter("weight", &weight);
//!     let mut model = Model::new(vec![unit], FullyShard::new(group, Policy::default()))?;
//!
//!     let x = Tensor::new(&[[1.0_f32, 2.0]], &Device::Cpu)?;
//!     let loss = model.forward(&x)?.sum_all()?;
//!     model.backward(&loss)?;
//!     Sgd::new().step(&mut model, 0.5)?;
//!     model.zero_gradients();
//!
//!     let mut rows = vec![];
//!     model.look(|_, values| rows.extend_from_slice(values))?;
//!     Ok(rows)
//! }
//!
//! # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! for rows in Threads::new(2).run(train)? {
//!     assert_eq!(rows?, [0.5, 0.0]);
//! }
//! # Ok(())
//! # }
//! ```
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
pub use phalanx_core::DType;
pub use phalanx_fsdp::{DdpOptions, Groups, Offload, Part, Policy, Reshard, hooks};
pub use single::Single;
pub use strategy::{Held, Look, Strategy, Update};
pub use unit::{Parameter, Unit};
