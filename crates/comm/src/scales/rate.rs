//! Rates: what moving a byte takes, as far as is known.

use std::time::Duration;

/// Nanoseconds a byte, where they are known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate(Option<f64>);

impl Rate {
    pub(super) fn known(self) -> Option<f64> {
        self.0
    }

    /// Takes note of what so many bytes took. It follows what is faster at once and what is slower step by step: a moment in which
    /// another program ran says nothing.
    pub(super) fn weigh(&mut self, byte_len: usize, took: Duration) {
        if byte_len > 0 {
            let new = took.as_nanos() as f64 / byte_len as f64;
            let followed = |old: f64| if new < old { (old + new) / 2.0 } else { new.min(old * STEP) };
            self.0 = Some(self.0.map_or(new, followed));
        }
    }
}

/// Whether one of these costs is less than the other, and not by a hair; not while one of them is unknown.
pub(super) fn is_clearly_less(cost: Option<f64>, than: Option<f64>) -> bool {
    cost.zip(than).is_some_and(|(cost, than)| cost < than * CLEARLY)
}

const STEP: f64 = 1.125;
const CLEARLY: f64 = 0.9;
