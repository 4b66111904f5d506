//! The store's server, seen from raw sockets: what it answers byte for byte, and what it does with those who misbehave.

mod client;
mod crowds;
mod keyed;
mod limits;
mod torch;
