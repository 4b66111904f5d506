//! How often whoever listens may complain: a flood of bad visitors must not become a flood of lines.

use std::time::{Duration, Instant};

/// Lets a few lines a second through and counts the others.
#[derive(Debug)]
pub(crate) struct Journal {
    since: Instant,
    written: u32,
    withheld: u64,
}

impl Journal {
    pub(crate) fn new(now: Instant) -> Journal {
        Journal { since: now, written: 0, withheld: 0 }
    }

    /// Whether a line may be written now; if not it counts as withheld.
    pub(crate) fn admits(&mut self, now: Instant) -> bool {
        if now.duration_since(self.since) >= SECOND && self.withheld == 0 {
            (self.since, self.written) = (now, 0);
        }
        let admits = self.written < LINES;
        self.written += u32::from(admits);
        self.withheld += u64::from(!admits);
        admits
    }

    /// When a summary will be due, if lines were withheld.
    pub(crate) fn due(&self) -> Option<Instant> {
        (self.withheld > 0).then(|| self.since + SECOND)
    }

    /// How many lines were withheld, once it is time to say so.
    pub(crate) fn summary(&mut self, now: Instant) -> Option<u64> {
        if self.due().is_none_or(|due| now < due) {
            return None;
        }
        (self.since, self.written) = (now, 0);
        Some(std::mem::take(&mut self.withheld))
    }

    /// How many lines were withheld of which no summary told yet.
    pub(crate) fn withheld(&self) -> Option<u64> {
        Some(self.withheld).filter(|withheld| *withheld > 0)
    }
}

/// The most lines within one second.
const LINES: u32 = 10;
const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second_and_then_one_summary() {
        let start = Instant::now();
        let mut journal = Journal::new(start);
        let written = (0..25).filter(|_| journal.admits(start)).count();
        assert_eq!((written, journal.due()), (10, Some(start + SECOND)));
        assert_eq!(journal.summary(start + SECOND / 2), None);
        assert_eq!(journal.summary(start + SECOND), Some(15));
        assert_eq!((journal.summary(start + SECOND), journal.due()), (None, None));
        assert!(journal.admits(start + SECOND));
    }

    #[test]
    fn a_trickle_is_never_withheld() {
        let start = Instant::now();
        let mut journal = Journal::new(start);
        assert!((0..100).all(|number| journal.admits(start + SECOND / 10 * number)));
        assert_eq!(journal.due(), None);
    }
}
