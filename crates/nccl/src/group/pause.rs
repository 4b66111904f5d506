//! How whoever waits for the library or the device looks again: at once at first, since most ends come soon, then the more seldom the longer
//! it takes.

use std::time::Duration;

use crate::api::{Bell, Process};

/// Since when somebody waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    since: Duration,
}

impl Pause {
    /// Somebody waits from now on.
    pub(super) fn begun(now: Duration) -> Pause {
        Pause { since: now }
    }

    /// Whether the end may come so soon that others only go first.
    pub(super) fn is_short(self, now: Duration) -> bool {
        length(now.saturating_sub(self.since)).is_none()
    }

    /// Waits before the next look, at most until the bell is rung more often than it was seen to be.
    pub(super) fn wait(self, process: &impl Process, bell: &dyn Bell, seen: u64) {
        let now = process.now();
        match length(now.saturating_sub(self.since)) {
            None => process.give_way(),
            Some(pause) => bell.wait(seen, Some(now + pause)),
        }
    }
}

/// How long the next pause is after so much waiting; none where others only go first.
fn length(waited: Duration) -> Option<Duration> {
    (waited >= SOON).then(|| (waited / 4).clamp(SHORTEST, LONGEST))
}

/// A thread that sleeps takes as long to wake up.
const SOON: Duration = Duration::from_micros(50);
const SHORTEST: Duration = Duration::from_micros(50);
/// What an end is seen late at most.
const LONGEST: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_sleeps_at_first_and_pauses_grow_to_a_bound() {
        let length = |micros| length(Duration::from_micros(micros)).map(|pause| pause.as_micros());
        assert_eq!([0, 49].map(length), [None, None]);
        assert_eq!([50, 200, 400, 4_000, 1_000_000].map(length), [50, 50, 100, 1_000, 1_000].map(Some));
        let pause = Pause::begun(Duration::from_secs(1));
        assert!(pause.is_short(Duration::ZERO) && !pause.is_short(Duration::from_secs(2)));
    }
}
