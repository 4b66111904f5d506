//! Where ranks meet: keys, values, counters and queues that every member of a job can see.
//!
//! A [`Store`] is the handle that is called; behind it stands a [`Home`] with one verb, [`Home::ask`]. What a request means
//! is written once, in [`Table`]: a home within the process guards one with a lock, a file replays one, a server answers
//! its clients from one. [`wire`] is how requests travel, in PyTorch's words and in ours.

mod error;
mod handle;
mod limits;
mod request;
mod table;
pub mod wire;

pub use error::{Doubt, Refusal, StoreError};
pub use handle::{Home, Store};
pub use limits::Limits;
pub use request::{Key, Reply, Request, Value, Verb};
pub use table::{Asked, ClientId, Table, Ticket};
