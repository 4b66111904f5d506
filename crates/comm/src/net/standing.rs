//! What is known of a peer: that it is here, that it said it leaves, or that it is lost.

use std::sync::atomic::{AtomicU8, Ordering};

/// The standing of one peer. Its control connection decides it, its links look at it.
#[derive(Debug, Default)]
pub(crate) struct Standing(AtomicU8);

impl Standing {
    pub(crate) fn leave(&self) {
        self.0.store(LEFT, Ordering::Release);
    }

    pub(crate) fn lose(&self) {
        // Who has left cannot be lost.
        let _ = self.0.compare_exchange(HERE, LOST, Ordering::AcqRel, Ordering::Acquire);
    }

    pub(crate) fn has_left(&self) -> bool {
        self.0.load(Ordering::Acquire) == LEFT
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.0.load(Ordering::Acquire) == LOST
    }
}

const HERE: u8 = 0;
const LEFT: u8 = 1;
const LOST: u8 = 2;
