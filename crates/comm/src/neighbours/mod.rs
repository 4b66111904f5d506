//! Ranks of one host in a group that spans hosts: whether they share memory, and what a rank then has to its neighbours. How
//! the group comes together and what becomes of it is decided over TCP.

mod ending;
mod link;
mod share;
mod teams;
#[cfg(test)]
mod tests;
mod windows;

pub(crate) use share::{Agreement, Request, share};
