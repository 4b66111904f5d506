//! What happened in a job, from the flight recorders of its ranks.
//!
//! A [`Dump`] is one rank's account of one process: its groups and their last operations. It is taken from recorders, or read
//! from a [file](files), ours or PyTorch's. [`analyse`] compares the dumps of all ranks and tells who called something else,
//! who never came, who waits for whom and who is late; [`page`] and [`perfetto`] draw them.
//!
//! Dumps may come from anywhere, so nothing is believed: a pickle is read as data only, every size has a bound, and an error
//! names what was wrong and where. Nothing but [`files`] does I/O.
#![forbid(unsafe_code)]

mod analyse;
mod dump;
mod error;
pub mod files;
pub mod page;
pub mod perfetto;
pub mod pickle;
mod timeline;
pub mod torch;

pub use analyse::{Arrival, Finding, Options, Place, Report, Side, analyse, analyse_with};
pub use dump::{Dump, Entry, FORMAT, Identity, Site, State, TracedGroup};
pub use error::{Broken, Error};
