//! Host memory of Phalanx: the one home of host-memory `unsafe`.
//!
//! A [`Buffer`] is memory of one rank that an operation takes and hands back. A `Segment` is memory that processes of one
//! host share; a [`ring`] passes bytes through it and a [`board`] shows them in place, both also between threads. A
//! [`Secret`] is memory for key material, kept out of core files and wiped in the end.
//!
//! Under `--cfg loom` there are no segments: rings and boards are model-checked on the heap.

mod allocation;
pub mod board;
mod buffer;
#[cfg(not(loom))]
mod claims;
#[cfg(not(loom))]
#[cfg_attr(not(target_os = "linux"), path = "no_memfd.rs")]
mod memfd;
#[cfg_attr(any(not(target_os = "linux"), miri), path = "no_page.rs")]
mod page;
mod region;
pub mod ring;
mod secret;
#[cfg(not(loom))]
mod segment;
mod sync;
#[cfg(not(loom))]
mod words;

pub use allocation::OutOfMemory;
pub use buffer::{Buffer, CastError, SplitError};
pub use region::{LINE, PlaceError};
pub use secret::Secret;
#[cfg(not(loom))]
pub use segment::{Segment, SegmentError};
