//! The pure core of Phalanx: everything that can be decided from numbers alone.
//!
//! A [`Group`] checks a call, numbers it and hands it to its [`backend`]. There an [`Op`] becomes a [`schedule`], one rank's
//! whole part as data, which a [`player`] carries out over [`link`]s and windows, a poll at a time; messages between two
//! ranks go through [`mail`]. Elements are joined by [`reduce`]. What comes back up is a value: the buffers, or an [`Error`]
//! that says who is at fault and what is still usable.
//!
//! There is no I/O, clock, thread or unsafe code here. Whoever moves bytes and waits is a backend's business.
#![forbid(unsafe_code)]

pub mod backend;
mod call;
mod dtype;
mod element;
mod error;
mod fingerprint;
pub mod fnv;
mod group;
mod hook;
mod layout;
pub mod link;
pub mod mail;
mod op;
pub mod player;
mod ranks;
pub mod recorder;
pub mod reduce;
pub mod schedule;
mod site;
pub mod store;
mod tensor;
mod work;

pub use call::{Call, Reduction};
pub use dtype::{Class, DType};
pub use element::{Bool, Complex, Element, F8E4M3, F8E4M3Fnuz, F8E5M2, F8E5M2Fnuz, bf16, f16};
pub use error::{
    Aborted, Chain, Desync, Device, Error, ErrorKind, Last, Peer, PeerReason, Result, Scope, Setup, Stuck, Timeout,
    Usage, Waiting,
};
pub use fingerprint::{BadFingerprint, Difference, Fingerprint};
pub use group::{Coalesced, Delivered, Group, GroupOptions, Message, WeakGroup};
pub use hook::{Alarm, Hook};
pub use layout::Layout;
pub use op::{Counts, Need, Op, OpKind};
pub use ranks::Ranks;
pub use reduce::ReduceOp;
pub use site::{Place, Site};
pub use tensor::{BadView, View, ViewMut, reals};
pub use work::Work;
