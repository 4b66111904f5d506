//! Host memory of Phalanx: the one home of host-memory `unsafe`.
//!
//! A [`Buffer`] is memory of one rank that an operation takes and hands back. A `Segment` is memory that processes of one
//! host share; a [`ring`] passes bytes through it and a [`board`] shows them in place, both also between threads. Small
//! facts stand in `Cells`, whole under a sequence lock ([`record`]), or once and for all ([`first`]). A [`Secret`] is memory
//! for key material, kept out of core files and wiped in the end; an [`Origin`] tells a process from its forked children.
//! `Halves` is the one stranger: conversions that a processor has, which take `unsafe` too.
//!
//! Under `--cfg loom` there are no segments: what is lock-free is model-checked on the heap.

mod allocation;
pub mod board;
mod buffer;
#[cfg(not(loom))]
mod cells;
#[cfg(not(loom))]
mod claims;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
mod expect;
pub mod first;
#[cfg_attr(loom, path = "no_gauge.rs")]
mod gauge;
#[cfg(target_arch = "x86_64")]
mod halves;
#[cfg(not(loom))]
mod heap;
mod lines;
#[cfg(not(loom))]
mod memfd;
mod origin;
#[cfg_attr(miri, path = "no_page.rs")]
mod page;
pub mod record;
mod region;
pub mod ring;
mod secret;
#[cfg(not(loom))]
mod segment;
mod stream;
mod sync;
mod whole;
#[cfg(not(loom))]
mod words;

pub use allocation::OutOfMemory;
pub use buffer::{Buffer, CastError, SplitError};
#[cfg(not(loom))]
pub use cells::{Cells, Word};
pub use expect::{PROCESSOR_LINE, expect_writes};
#[cfg(target_arch = "x86_64")]
pub use halves::Halves;
#[cfg(not(loom))]
pub use heap::Heap;
pub use origin::Origin;
pub use region::{LINE, PlaceError};
pub use secret::Secret;
#[cfg(not(loom))]
pub use segment::{Segment, SegmentError};
pub use stream::{copy_past_caches, fill_past_caches};
