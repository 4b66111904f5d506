//! Links and windows of ranks that share memory: rings and a board, with a bell rung once after what moved in a poll.
//!
//! A closed ring or seat means that its rank left: one that fails or panics seals the group's fate before its links close,
//! and one whose process dies closes nothing.

mod link;
mod windows;

pub(crate) use link::MemoryLink;
pub(crate) use windows::{BoardWindows, Neighbours};
