//! Lending: where the ranks of a host can write each other's memory, each makes one slice what all end with, everywhere.
//!
//! Whether they can is known only when they meet, because it is a matter of where each has its buffer. So a schedule that can be
//! played so says how, and has its steps for when any of them cannot.

use super::Span;

/// How an operation is carried out where all ranks lend their memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lending {
    /// What this rank lends: all the data of the operation, or nothing where it gives it from another place.
    pub room: Option<Span>,
    /// The part that this rank makes final, in its own memory and in all others'.
    pub slice: Span,
    /// What that part becomes.
    pub source: Source,
}

/// What a slice becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// All ranks' data, joined in the order of their ranks.
    All,
    /// This rank's data.
    Rank(usize),
}

/// What is shorter is not worth a meeting, unless it travels in several pieces.
pub(super) const FROM_BYTE_LEN: usize = 32 << 10;
