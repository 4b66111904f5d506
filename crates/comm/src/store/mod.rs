//! Where stores live: in this process, in a file that several processes share, or behind a server.
//!
//! A home only guards and carries: what a request means is the [table](phalanx_core::store::Table)'s to say.

mod address;
mod client;
mod file;
mod local;
mod owner;
pub mod server;

pub use address::StoreAddress;
pub use client::{ClientOptions, Speech, TcpStore};
pub use file::{FileStore, FileStoreOptions};
pub use local::LocalStore;
pub use server::{ServerOptions, StoreServer};
