//! Where ranks of one host find each other when nobody says where: rank 0 serves a store at an address of its own choice,
//! with a key of its own, and puts up a notice that only this user can read.

mod directory;
mod hold;
mod notice;
mod writer;

pub(crate) use directory::Lobby;
pub(crate) use notice::{Notice, Posted};
pub(crate) use writer::{Writer, parent};
