//! What ranks say to each other besides the data: that they live, what they have begun, of what they failed, and that they
//! leave. One thread a group says and hears it, whatever the rank itself is doing.

mod beacon;
mod keeper;
mod message;
mod peer;
mod stay;
#[cfg(test)]
mod tests;

pub(crate) use stay::{Company, Peer, Stay};
