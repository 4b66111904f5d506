//! How a thread waits for a file to change: it looks again after a while, and after longer ones the longer nothing happens.

use std::thread;
use std::time::{Duration, Instant};

/// The looks of one wait.
#[derive(Debug)]
pub(super) struct Looks {
    deadline: Option<Instant>,
    pause: Duration,
}

impl Looks {
    /// Looks until `timeout` from now; for ever if that is beyond what a clock can tell.
    pub(super) fn new(timeout: Duration) -> Looks {
        Looks { deadline: Instant::now().checked_add(timeout), pause: SHORTEST }
    }

    /// Sleeps until the next look; false once the deadline has passed. The last look comes at the deadline.
    pub(super) fn wait(&mut self) -> bool {
        let left = self.deadline.map_or(LONGEST, |deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return false;
        }
        thread::sleep(self.pause.min(left));
        self.pause = (self.pause * 3 / 2).min(LONGEST);
        true
    }
}

const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_look_comes_at_the_deadline() {
        let (began, timeout) = (Instant::now(), Duration::from_millis(30));
        let mut looks = Looks::new(timeout);
        while looks.wait() {}
        assert!(began.elapsed() >= timeout);
        assert!(!Looks::new(Duration::ZERO).wait());
        assert!(Looks::new(Duration::MAX).wait());
    }
}
