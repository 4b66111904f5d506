//! Where a store's contents live: this process, or a file that several processes share.
//!
//! A home only guards and carries: what a request means is the [table](phalanx_core::store::Table)'s to say.

mod file;
mod local;

pub use file::{FileStore, FileStoreOptions};
pub use local::LocalStore;
