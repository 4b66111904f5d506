//! The store that the ranks of a job share: where one lives, and how it is reached and served.
//!
//! A rank that [joins](crate::Joining) a world comes by its store by itself. What is here is for programs that serve one to ranks which they start,
//! that make a world over a store of their own ([`World::join`](crate::World::join), [`World::host`](crate::World::host)), or that ask a
//! job from outside ([`trace::collect`](crate::trace::collect())).
//!
//! ```
//! use phalanx::store::{ClientOptions, ServerOptions, StoreServer, TcpStore};
//! use phalanx::{Store, World, WorldOptions};
//!
//! let server = StoreServer::start(ServerOptions::new("127.0.0.1:0".parse()?))?;
//! let store = Store::new(TcpStore::connect(ClientOptions::new(server.address().clone()))?);
//! let world = World::host(store, &WorldOptions::new(0, 1), server)?;
//! assert_eq!(world.size(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use phalanx_comm::secure::{Claim, ClaimError, Session};
pub use phalanx_comm::store::{
    ClientOptions, FileStore, FileStoreOptions, LocalStore, ServerOptions, Speech, StoreAddress, StoreServer, TcpStore,
    server,
};
pub use phalanx_core::store::{Doubt, Home, Key, Limits, Refusal, Reply, Request, Store, StoreError, Value, Verb};
