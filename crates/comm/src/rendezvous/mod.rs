//! How ranks that only share a store become a world: each brings a card, all get all cards, and know who is where.
//!
//! [`Meeting`] is the one protocol: it is how a world is joined, how it has its barriers, and how it is left. What a rank
//! says of itself is its card; what follows from all cards together is the [`World`]. How the store is reached is not
//! decided here.

mod arrival;
mod barriers;
pub(crate) mod bytes;
pub(crate) mod card;
mod change;
mod election;
mod error;
mod identity;
mod meet;
mod member;
mod options;
mod outcome;
mod reconfigure;
mod start;
mod world;

pub use error::MeetError;
pub(crate) use identity::{home_identity, share_network};
pub use identity::{host_identity, host_name};
pub use meet::Meeting;
pub use member::Member;
pub use options::WorldOptions;
pub use start::{agree_on_start, latest_start};
pub use world::{World, service_keys};
