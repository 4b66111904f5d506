//! The front: what a user of Phalanx depends on.
//!
#![doc = include_str!("../../../README.md")]
#![forbid(unsafe_code)]

mod environment;
mod joining;
mod lobby;
mod profile;
mod report;
mod url;
mod world;

pub use environment::{Launcher, Placement};
pub use joining::Joining;
pub use phalanx_comm::Threads;
pub use phalanx_comm::rendezvous::{Member, World, WorldOptions};
pub use phalanx_comm::secure::{JobKey, JobName};
#[cfg(target_os = "linux")]
pub use phalanx_comm::{Protection, Transport, Wiring};
pub use phalanx_core::store::{Store, StoreError};
pub use phalanx_core::{
    Aborted, Bool, Class, Counts, DType, Delivered, Desync, Device, Element, Error, ErrorKind, F8E4M3Fnuz, F8E5M2Fnuz,
    Group, GroupOptions, Last, Layout, Message, Need, Op, OpKind, Peer, PeerReason, ReduceOp, Reduction, Result, Scope,
    Setup, Stuck, Timeout, Usage, Waiting, Work, backend, recorder, reduce, schedule,
};
pub use phalanx_mem::Buffer;
pub use world::{init, join, threads};
