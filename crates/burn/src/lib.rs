//! Training of burn models by many ranks: units that are sharded, replicas whose gradients are averaged. Layers, optimizers and gradients are
//! burn's own. Not here: what ranks exchange and when, which is `phalanx-fsdp`.
//!
//! | to | there is |
//! |---|---|
//! | divide a model among ranks | [`FullyShard`], of [`Units`], each a module that is run by its handle, a [`Unit`] |
//! | hold all of it on each | [`Ddp`], whose [`average`](Ddp::average) stands between backward and the optimizer's step |
//! | have replicas of a divided one | [`Groups`], in place of the group |
//! | say what is computed in, kept and freed | a [`Policy`]; [`UnitOptions`] for one unit; types are [`DType`]s |
//! | send gradients in another form | [`hooks`] |
//! | save it | [`FullyShard::look`] and [`Part`]s, which `phalanx-checkpoint` takes |
//!
//! Two ranks, threads here, hold half of this model each:
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use burn_nn::LinearConfig;
//! use burn_optim::AdamWConfig;
//! use phalanx_burn::{FullyShard, Policy, Units};
//! use phalanx_comm::Threads;
//! use phalanx_core::{Group, Result};
//!
//! /// One step; how many elements this rank holds.
//! fn train(group: Group) -> Result<usize> {
//!     let device = Device::flex().autodiff();
//!     let mut units = Units::new();
//!     let first = units.add("first", LinearConfig::new(8, 32).init(&device));
//!     let second = units.add("second", LinearConfig::new(32, 2).init(&device));
//!     let mut model = FullyShard::new(group, Policy::default(), units)?;
//!     let mut optimizer = AdamWConfig::new().init();
//!
//!     let x = Tensor::<2>::ones([16, 8], &device);
//!     let y = model.run(first, x, |layer, x| layer.forward(x).tanh())?;
//!     let loss = model.run(second, y, |layer, y| layer.forward(y))?.powf_scalar(2.0).mean();
//!     model.backward(&loss)?;
//!     model.step(&mut optimizer, 1e-3)?;
//!
//!     Ok(model.parts().iter().map(|part| part.elements.len()).sum())
//! }
//!
//! # fn main() -> Result<()> {
//! for held in Threads::new(2).run(train)? {
//!     assert_eq!(held?, (8 * 32 + 32 + 32 * 2 + 2) / 2);
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod ddp;
mod flow;
mod fully_shard;
mod held;
mod tape;
mod units;
mod values;
mod walk;

pub use ddp::Ddp;
pub use flow::Flow;
pub use fully_shard::FullyShard;
pub use phalanx_core::DType;
pub use phalanx_fsdp::{DdpOptions, Groups, Memory, Part, Policy, Reshard, hooks};
pub use units::{Unit, UnitOptions, Units};
