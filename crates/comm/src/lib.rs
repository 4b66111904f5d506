//! How Phalanx moves bytes on the CPU: links and windows, waiting, and the lane that plays operations in order.
//!
//! Ranks are threads ([`Threads`]), processes of one host (`Processes`), or wherever TCP reaches them (`Network`), the last
//! two on Linux. Besides it holds the door that keeps strangers out of a job: [`secure`]; and how ranks that share a store
//! become a world: [`rendezvous`].
#![forbid(unsafe_code)]

mod backends;
mod bell;
mod caches;
mod equipment;
mod fate;
#[cfg_attr(not(target_os = "linux"), path = "no_futex.rs")]
mod futex;
#[cfg(target_os = "linux")]
mod groups;
mod host;
mod journal;
mod lane;
mod lasting;
#[cfg(target_os = "linux")]
mod local;
mod memory;
mod moment;
#[cfg(target_os = "linux")]
mod neighbours;
#[cfg(target_os = "linux")]
mod net;
#[cfg(target_os = "linux")]
mod network;
mod patience;
#[cfg_attr(not(target_os = "linux"), path = "no_poller.rs")]
mod poller;
mod post;
#[cfg(target_os = "linux")]
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
#[cfg(target_os = "linux")]
mod waits;
mod wiring;

pub use backends::{Backends, Maker, Seat};
#[cfg(target_os = "linux")]
pub use groups::{Formed, Mesh, Registry};
#[cfg(target_os = "linux")]
pub use local::Door;
#[cfg(target_os = "linux")]
pub use net::Protection;
#[cfg(target_os = "linux")]
pub use network::Network;
#[cfg(target_os = "linux")]
pub use processes::Processes;
pub use threads::Threads;
#[cfg(target_os = "linux")]
pub use wiring::{Transport, Wiring};
