//! The process that a store belongs to: one that was forked from it has the same descriptors, and is told to make its own.

use std::process;

use phalanx_core::store::{StoreError, Verb};

/// A process, by its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner(pub(super) u32);

impl Owner {
    /// This process.
    pub(super) fn here() -> Owner {
        Owner(process::id())
    }

    /// Whether this is still the process that it was made in.
    pub(super) fn is_here(self) -> bool {
        process::id() == self.0
    }

    /// The error of a call in a process that was forked, which is to do this `again`.
    pub(super) fn denied(self, verb: Verb, store: &str, again: &str) -> StoreError {
        let (owner, here) = (self.0, process::id());
        let why = format!("it belongs to process {owner}, from which this one, {here}, was forked: {again}");
        StoreError::Denied { verb, detail: format!("{store}: {why}") }
    }
}
