//! How requests and replies travel: PyTorch's words, and ours. No socket is seen here, only bytes.
//!
//! [`torch`] is the protocol of PyTorch's `TCPStore`, [`native`] our own frames, which also carry refusals and waiting reads.
//! Decoders are handed what was received so far, in any cuts; they take time in proportion to the bytes, and refuse a length
//! before anything is set aside for it. On the wire every key of a user begins with a slash: [`to_wire`] and [`from_wire`]
//! are the client's to call, a server keeps keys as they come. docs/wire.md holds every byte.

mod cursor;
mod malformed;
pub mod native;
mod prefix;
mod sink;
pub mod torch;

pub use malformed::Malformed;
pub use prefix::{from_wire, refused_from_wire, to_wire};
pub use sink::Sink;
