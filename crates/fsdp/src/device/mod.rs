//! The engine on devices: the same machine, layout and policies, its actions put on streams.
//!
//! What is gathered, freed and reduced when is the machine's to say, as on the host. An action there waits on the host for what was begun;
//! here a stream waits for it, and every place where one does has a name ([`Edge`]). Shards go through a stream of copies in to the
//! gather, which runs on the stream of its communicator; full parameters are copied out on the program's own stream; rows of
//! gradients are written there, reduced on the stream of a communicator, and taken as gradients of shards on a stream for that.
//!
//! Memory is handed out and taken back in the order of streams too ([`DeviceSharded::memory`] counts it), so that in the steady step the
//! host waits for nothing, uploads nothing and allocates nothing. Where shards live on the host, they come from pinned memory before each
//! gather, and their gradients go there: the host waits for those alone, when it reads them.

mod deck;
mod edge;
mod gather;
mod groups;
mod model;
mod pool;
mod reduce;
mod runner;
mod store;
mod table;
mod unit;

pub use edge::Edge;
#[cfg(feature = "mistakes")]
pub use edge::Mistake;
pub use groups::DeviceGroups;
pub use model::DeviceSharded;
pub use reduce::DeviceGradient;
pub use runner::Lent;
pub use store::Update;
