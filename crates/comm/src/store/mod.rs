//! Where stores live: in this process, in a file, or behind a server. What they do is core's; here is how they are reached.

mod address;
mod client;
pub mod server;

pub use address::StoreAddress;
pub use client::{ClientOptions, Speech, TcpStore};
pub use server::{ServerOptions, StoreServer};
