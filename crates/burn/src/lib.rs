//! Training of burn models by many ranks: units that are sharded, replicas whose gradients are averaged. Layers, optimizers and gradients are
//! burn's own. Not here: what ranks exchange and when, which is `phalanx-fsdp`.
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
pub use phalanx_fsdp::{DdpOptions, Groups, Part, Policy, Reshard, hooks};
pub use units::{Unit, UnitOptions, Units};
