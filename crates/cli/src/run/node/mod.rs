//! Several nodes: one launcher on each, which start an epoch together, tell each other of trouble, and come to one verdict.
//!
//! They meet in the job's store, which the launcher of node 0 serves. Every launcher has an [`Agent`] that shows that it
//! lives, hears of trouble elsewhere, and hands in what is known of its ranks. Node 0 has the [`Court`] besides, which
//! collects that from all nodes and decides for all. Who is in an epoch at all stands in one place, the [`roster`]. Not here:
//! what a launcher does with its own ranks.

mod agent;
mod card;
mod court;
mod gathering;
mod judgement;
mod meeting;
mod place;
mod roster;
#[cfg(test)]
mod sample;
mod text;

pub(super) use agent::Agent;
pub(super) use card::{Card, layout};
pub(super) use court::Court;
pub(super) use judgement::{Account, Cry, Judgement, decide};
pub(super) use meeting::{Meeting, Met, meet};
