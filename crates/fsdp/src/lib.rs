//! Sharded training without a framework: each rank holds its part of the parameters, gradients and optimizer state, and full
//! parameters exist only while they are used.
//!
//! A model is a list of units ([`UnitSpec`]). Its owner, an adapter for a framework, tells [`Sharded`] what the model comes to:
//! [`before_forward`](Sharded::before_forward) lends the full parameters of a unit, [`after_forward`](Sharded::after_forward) frees
//! them, [`before_backward`](Sharded::before_backward) lends them again and [`gradients`](Sharded::gradients) takes what backward
//! made. What is gathered, freed and reduced, and when, is decided by a pure [`Machine`]; the runner carries it out over the
//! groups, the next unit's gather and the last unit's reduction while this one is computed.
//!
//! The engine knows bytes and element types, and no framework's tensors.
//!
//! ```
//! use phalanx_comm::Threads;
//! use phalanx_core::DType;
//! use phalanx_fsdp::{Gradient, ParamSpec, Policy, Sharded, UnitSpec};
//!
//! let ends = Threads::new(2).run(|group| {
//!     let rank = group.rank() as f32;
//!     let layer = UnitSpec::new("layer", vec![ParamSpec::new("weight", &[3, 2], DType::F32)]);
//!     let mut model = Sharded::new(group, vec![layer], Policy::default())?;
//!     let weight = model.param("layer", "weight").expect("it was just named");
//!     model.load_full(weight, &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//!
//!     let mut full = [0.0_f32; 6];
//!     model.before_forward(0)?.copy_out(0, &mut full)?;
//!     model.after_forward(0)?;
//!     model.before_backward(0)?;
//!     model.gradients(0, &[Gradient::new(0, &full.map(|x| x * rank))])?;
//!     model.finish_backward()?;
//!
//!     let (shard, gradient) = model.update::<f32>(weight)?;
//!     for (value, slope) in shard.iter_mut().zip(gradient.unwrap_or_default()) {
//!         *value -= slope;
//!     }
//!     Ok::<_, phalanx_core::Error>(shard.to_vec())
//! })?;
//! // The first rank holds two rows of the three, the second one.
//! assert_eq!(ends, [Ok(vec![0.5, 1.0, 1.5, 2.0]), Ok(vec![2.5, 3.0])]);
//! # Ok::<(), phalanx_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod agreement;
mod arena;
mod cast;
pub mod clip;
mod ddp;
#[cfg(feature = "devices")]
pub mod device;
mod event;
mod extension;
mod factors;
mod flight;
mod gather;
mod groups;
pub mod hooks;
mod layout;
mod load;
mod machine;
mod memory;
mod options;
mod reduce;
mod runner;
mod sharded;
mod spec;
mod trace;
mod unit;

pub use agreement::refuse;
pub use ddp::{Ddp, DdpOptions};
pub use event::{Action, Depth, Event, Settings};
pub use extension::Extension;
pub use factors::Factors;
pub use gather::Gathered;
pub use groups::Groups;
pub use layout::Division;
pub use machine::Machine;
pub use memory::{Bytes, Class, Memory};
pub use options::{Offload, Policy, Reshard};
pub use reduce::Gradient;
pub use sharded::Sharded;
pub use spec::{Param, ParamSpec, Part, UnitSpec};
pub use trace::{Step, Traced};
pub use unit::Then;
