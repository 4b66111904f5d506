//! Collectives between processes of one host without NCCL: memory and events that the driver lends to other processes. So that several ranks
//! can share a card, which NCCL refuses before 2.30; for tests and small machines, and only where a program chooses it.
//!
//! [`SameHost`] is an [`Nccl`](crate::api::Nccl) like the library's own, so everything above it is the same: groups, watchdog, recorder, the
//! conformance list. A program gives it to a [`Stack`](crate::group::Stack) in the library's place.
//!
//! # How it works
//!
//! Each rank of a communicator has a *desk*: memory of its device that the others have open. An operation goes in *rounds* of one piece. A rank
//! copies what the others need onto its desk, records an event and *posts* through the store that it has; once all have posted, its stream
//! waits for their events and takes what it needs from their desks. Nothing on a device spins: streams wait for events, so ranks that take
//! turns on one card do not starve each other.
//!
//! A desk has two places, used in turn. Whoever has waited for everybody's event of a round comes after everybody's taking of the round before,
//! so the place of that one is free again, and no event says so twice. Messages have places and events of their own for each pair of ranks, and
//! the receiver says when it has taken one.
//!
//! The host takes part in every round: by a store over TCP that is some hundred microseconds, whatever the size. What is exchanged is staged
//! once. NCCL is faster where it can be had.
//!
//! # Limits
//!
//! Ranks are processes of one host, 2 to 8 of them or one alone, and each has loaded the [`Program`](crate::library::Program) of kernels. A
//! communicator keeps up to four [pieces](SameHost::piece) of device memory. What is new in NCCL since 2.18 is absent. A rank that ends without
//! the others having let go of its desk keeps that memory, and [counts it](SameHost::kept).

#![forbid(unsafe_code)]

mod desk;
mod leave;
mod lot;
mod member;
mod messages;
mod post;
mod rounds;
mod split;
mod transport;
mod trouble;

pub use transport::SameHost;

/// How many ranks there are at most.
pub const MOST_RANKS: usize = crate::kernels::Join::MOST;
