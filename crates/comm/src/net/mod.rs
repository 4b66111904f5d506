//! Ranks that reach each other over TCP: how they come together, the links they then have, and what they say to each other
//! besides the data. What is built on it is the same as for threads; docs/wire.md has every byte.

mod accord;
mod card;
mod connect;
mod control;
mod door;
mod gather;
mod greeting;
mod guests;
mod hello;
mod link;
mod muster;
mod pipe;
mod places;
mod protection;
mod retry;
mod sealed;
mod socket;
mod standing;

pub(crate) use card::Manner;
pub(crate) use control::{Company, Peer, Stay};
pub(crate) use gather::{Gathered, Lines, Terms, gather};
pub(crate) use greeting::Guard;
pub(crate) use link::link;
pub use protection::Protection;
pub(crate) use standing::Standing;
