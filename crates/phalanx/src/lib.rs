//! Training one model on many processes, machines and GPUs: ranks find each other, move gradients and shards fast, and say what went
//! wrong when one of them stops. A call returns the right data or an error that names the rank at fault.
//!
//! ```
//! // Four ranks as threads of this process.
//! let means = phalanx::try_threads(4, |group| {
//!     let mut gradient = vec![group.rank() as f32; 1000];
//!     group.all_reduce(&mut gradient, phalanx::ReduceOp::Avg)?;
//!     Ok(gradient[0])
//! })?;
//! assert_eq!(means, [1.5; 4]);
//! # Ok::<(), phalanx::Error>(())
//! ```
//!
//! ```no_run
//! // One of many processes, started by `phalanx run`, torchrun, `mpirun`, `srun` or in Kubernetes.
//! let world = phalanx::init()?;
//! let group = world.group()?; // shared memory on one host, else TCP
//! let mut gradient = vec![group.rank() as f32; 1000];
//! group.all_reduce(&mut gradient, phalanx::ReduceOp::Avg)?;
//! # Ok::<(), phalanx::Error>(())
//! ```
//!
//! | to | there is |
//! |---|---|
//! | find the other ranks | [`init`], [`join`], [`Joining`]; [`threads`] in one process; keys are [`JobKey`]s |
//! | form groups | [`World::group`], [`World::wire`] with a [`Wiring`], [`World::subgroup`], [`World::split`], [`World::mesh`] |
//! | work together | the methods of [`Group`]: blocking, or as a [`Work`] that is awaited |
//! | share small things | [`World::store`], a [`Store`]; [`World::barrier`] |
//! | know what failed | [`Error`]: its [kind](ErrorKind), its [scope](Scope), and [who](Error::culprits) is to blame |
//! | go on without a rank, or with more | [`World::reconfigure`], [`Joining::newcomer`] |
//! | see what happens | [`account`], [`trace`], [`neighbours`]; the features `metrics` and `tracing` |
//! | carry operations out | a [`backend`], by a [`Maker`] among a world's [`Backends`]; over links of one's own [`schedule`], [`player`], [`mail`], [`link`] |
//! | train | the feature `fsdp`, and the crates `phalanx-candle` and `phalanx-burn` |
//! | use GPUs | the feature `nccl` |
#![forbid(unsafe_code)]

/// The programs of the README are compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod account;
mod companion;
mod environment;
mod inquiry;
mod joining;
mod lobby;
mod lookup;
#[cfg(feature = "nccl")]
mod maker;
mod presence;
mod profile;
#[cfg(feature = "metrics")]
mod publish;
mod report;
pub mod settings;
#[cfg(feature = "tracing")]
mod spans;
pub mod store;
pub mod trace;
mod url;
mod world;

pub use account::{Account, GroupAccount, KindAccount, Underway, account};
pub use environment::{Launcher, Placement};
pub use inquiry::{Neighbour, neighbours};
pub use joining::Joining;
#[cfg(feature = "nccl")]
pub use maker::NcclMaker;
#[doc(hidden)]
pub use phalanx_comm::Registry;
pub use phalanx_comm::Threads;
pub use phalanx_comm::rendezvous::{Member, World, WorldOptions};
pub use phalanx_comm::secure::{ClaimError, JobKey, JobName, KeyError};
pub use phalanx_comm::{Backends, Formed, Maker, Mesh, Protection, Seat, Transport, Wiring};
pub use phalanx_core::store::{Store, StoreError};
pub use phalanx_core::{
    Aborted, Alarm, BadView, Bool, Call, Chain, Class, Coalesced, Complex, Counts, DType, Delivered, Desync, Device,
    Element, Error, ErrorKind, F8E4M3, F8E4M3Fnuz, F8E5M2, F8E5M2Fnuz, Fingerprint, Group, GroupOptions, Hook, Last,
    Layout, Message, Need, Op, OpKind, Peer, PeerReason, Place, Ranks, ReduceOp, Reduction, Result, Scope, Setup, Site,
    Stuck, Timeout, Usage, View, ViewMut, Waiting, WeakGroup, Work, backend, bf16, f16, link, mail, player, reals,
    recorder, reduce, schedule,
};
#[cfg(feature = "fsdp")]
pub use phalanx_fsdp as fsdp;
pub use phalanx_mem::{Buffer, CastError, OutOfMemory, SplitError};
#[cfg(feature = "nccl")]
pub use phalanx_nccl as nccl;
pub use presence::Presence;
#[cfg(feature = "metrics")]
pub use publish::{Publisher, Publishing};
#[cfg(feature = "tracing")]
pub use spans::Spans;
pub use world::{init, join, threads, try_threads};
