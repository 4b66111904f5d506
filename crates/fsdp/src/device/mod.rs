//! The engine on devices: the same machine, layout and policies, its actions put on streams.
//!
//! What is gathered, freed and reduced when is the machine's to say, as on the host. An action there waits on the host for what was begun;
//! here a stream waits for it, and every place where one does has a name ([`Edge`]). Shards go through a stream of copies in to the
//! gather, which runs on the stream of its communicator; full parameters are copied out on the program's own stream; rows of
//! gradients are written there, reduced on the stream of a communicator, and taken as gradients of shards on a stream for that.
//!
//! Memory is handed out and taken back in the order of streams too ([`DeviceSharded::memory`] counts it), so that in the steady step the
//! host waits for nothing, uploads nothing and allocates nothing. Where shards live on the host, they come from pinned memory before each
//! gather, and their gradients go there: the host waits for those alone, when it reads them.
//!
//! Two simulated ranks share a weight that is its own gradient:
//!
//! ```
//! use phalanx_core::{DType, GroupOptions, Layout, Result};
//! use phalanx_fsdp::device::{DeviceGroups, DeviceSharded};
//! use phalanx_fsdp::{Param, ParamSpec, Policy, UnitSpec};
//! use phalanx_nccl::api::{Cuda, Device};
//! use phalanx_nccl::group::{DeviceGroup, NcclOptions, Stack};
//! use phalanx_nccl::sim::{SimRank, Simulation};
//!
//! fn program(rank: SimRank) -> Result<Vec<f32>> {
//!     let stack = Stack::new(rank.nccl, rank.cuda.clone(), rank.process, Device(0));
//!     let layout = Layout::one_host(rank.rank, rank.size)?;
//!     let group =
//!         DeviceGroup::new(stack.clone(), layout, rank.store, NcclOptions::default(), GroupOptions::default())?;
//!     let compute = rank.cuda.create_stream(Device(0), false).expect("a stream");
//!     let layer = UnitSpec::new("layer", vec![ParamSpec::new("weight", &[3, 2], DType::F32)]);
//!     let mut model =
//!         DeviceSharded::new(stack, compute, DeviceGroups::new(group), vec![layer], Policy::default())?;
//!     let weight = Param { unit: 0, index: 0 };
//!     model.load_full(weight, &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//!
//!     model.before_forward(0)?;
//!     model.after_forward(0)?;
//!     let full = model.before_backward(0)?;
//!     let gradients = model.gradient_memory(0, DType::F32)?;
//!     // In place of kernels: whatever is put on the stream of the computation from now on.
//!     rank.cuda.copy(gradients[0].buffer().span(), full.param(0)?.span(), compute).expect("copied");
//!     model.gradients(0, &gradients)?;
//!     model.finish_backward()?;
//!
//!     model.update_on_host::<f32>(weight, |shard, gradient| {
//!         shard.iter_mut().zip(gradient.unwrap_or_default()).for_each(|(value, slope)| *value -= 0.5 * slope);
//!     })?;
//!     let mut full = vec![0.0; 6];
//!     model.copy_full(weight, &mut full)?;
//!     Ok(full)
//! }
//!
//! let outcome = Simulation::new(2, 7).run(program);
//! assert_eq!(outcome.results[0], Some(Ok(vec![0.5, 1.0, 1.5, 2.0, 2.5, 3.0])));
//! assert!(outcome.findings.is_empty());
//! ```

mod after;
mod clip;
mod deck;
mod edge;
mod gather;
mod groups;
mod hook;
mod host;
mod model;
mod pool;
mod reduce;
mod runner;
mod store;
mod table;
mod unit;

pub use edge::Edge;
#[cfg(feature = "mistakes")]
pub use edge::Mistake;
pub use groups::DeviceGroups;
pub use model::DeviceSharded;
pub use reduce::DeviceGradient;
pub use runner::Lent;
pub use store::Update;
