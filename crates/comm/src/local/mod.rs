//! Ranks of one host that are processes: one sealed segment that all of them map, how it is handed out, and who watches
//! whom. What is built on it is the same as for threads.

mod door;
mod invitation;
mod join;
mod map;
mod meet;
mod packet;
mod process;
mod reach;
mod readable;
#[cfg(test)]
mod tests;
mod watch;

pub use door::Door;
pub(crate) use invitation::Invitation;
pub(crate) use join::{Joined, create, join, join_fitted};
pub(crate) use map::{MOST_RANKS, SegmentMap};
pub(crate) use meet::{Gathering, Met, Peers, Terms, attend, host};
pub(crate) use reach::Neighbourhood;
pub(crate) use watch::{Departures, Stay};
