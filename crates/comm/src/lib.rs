//! How Phalanx moves bytes on the CPU: links and windows, waiting, and the lane that plays operations in order.
//!
//! Ranks are threads ([`Threads`]), processes of one host ([`Processes`]), or wherever TCP reaches them ([`Network`]). Besides it
//! holds the door that keeps strangers out of a job: [`secure`]; and how ranks that share a store become a world: [`rendezvous`].
#![forbid(unsafe_code)]

mod backends;
mod bell;
mod caches;
mod equipment;
mod fate;
mod futex;
mod groups;
mod host;
mod journal;
mod lane;
mod lasting;
mod local;
mod memory;
mod moment;
mod neighbours;
mod net;
mod network;
mod patience;
mod poller;
mod post;
mod processes;
mod pulse;
pub mod rendezvous;
mod roll;
mod scales;
pub mod secure;
mod slot;
mod slots;
mod stage;
pub mod store;
mod threads;
mod verdict;
mod waits;
mod wiring;

pub use backends::{Backends, Maker, Seat};
pub use groups::{Formed, Mesh, Registry};
pub use local::Door;
pub use net::Protection;
pub use network::Network;
pub use processes::Processes;
pub use threads::Threads;
pub use wiring::{Transport, Wiring};
