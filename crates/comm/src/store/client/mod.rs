//! The client of a store's server: one [`TcpStore`], whatever the server speaks, and however badly the way there behaves.
//!
//! Every call borrows a connection of its own, so that calls from several threads never wait for each other, and every wait
//! on a socket ends by the call's deadline. What was asked is said in our frames where the server knows them and in
//! PyTorch's words where not. A connection that breaks is replaced; what may have been done already is asked again only
//! where that does no harm.

mod capabilities;
mod connection;
mod greeting;
mod idle;
mod native;
mod options;
mod pytorch;
mod reach;
mod resolve;
mod socket;
mod stream;
mod tcp_store;
mod time;
mod trouble;

pub use options::{ClientOptions, Speech};
pub use tcp_store::TcpStore;
