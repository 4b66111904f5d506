//! Where stores live: in this process, in a file, or behind a server. What they do is core's; here is how they are reached.

mod address;

pub use address::StoreAddress;
