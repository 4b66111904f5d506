//! The front: what a user of Phalanx depends on.
//!
#![doc = include_str!("../../../README.md")]
#![forbid(unsafe_code)]

mod account;
mod companion;
mod environment;
mod inquiry;
mod joining;
mod lobby;
mod lookup;
#[cfg(all(feature = "nccl", target_os = "linux"))]
mod maker;
mod presence;
mod profile;
#[cfg(feature = "metrics")]
mod publish;
mod report;
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
#[cfg(all(feature = "nccl", target_os = "linux"))]
pub use maker::NcclMaker;
pub use phalanx_comm::Threads;
pub use phalanx_comm::rendezvous::{Member, World, WorldOptions};
pub use phalanx_comm::secure::{ClaimError, JobKey, JobName, KeyError};
#[cfg(target_os = "linux")]
pub use phalanx_comm::{Backends, Formed, Maker, Mesh, Protection, Registry, Seat, Transport, Wiring};
pub use phalanx_core::store::{Store, StoreError};
pub use phalanx_core::{
    Aborted, Alarm, BadView, Bool, Class, Coalesced, Counts, DType, Delivered, Desync, Device, Element, Error,
    ErrorKind, F8E4M3Fnuz, F8E5M2Fnuz, Group, GroupOptions, Hook, Last, Layout, Message, Need, Op, OpKind, Peer,
    PeerReason, Place, ReduceOp, Reduction, Result, Scope, Setup, Site, Stuck, Timeout, Usage, View, ViewMut, Waiting,
    WeakGroup, Work, backend, reals, recorder, reduce, schedule,
};
#[cfg(feature = "fsdp")]
pub use phalanx_fsdp as fsdp;
pub use phalanx_mem::Buffer;
#[cfg(feature = "nccl")]
pub use phalanx_nccl as nccl;
#[cfg(target_os = "linux")]
pub use presence::Presence;
#[cfg(feature = "metrics")]
pub use publish::{Publisher, Publishing};
#[cfg(feature = "tracing")]
pub use spans::Spans;
pub use world::{init, join, threads};
