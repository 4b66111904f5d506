//! Whether the thread that keeps a group still runs, as a thread sees it that waits in a call: the watch over the watch.

use std::time::{Duration, Instant};

/// What a waiting thread has seen of the keeper.
///
/// Looks are counted, not time: in a process that was stopped as a whole this thread did not look either.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    beats: u64,
    looks: u32,
    last: Option<Instant>,
}

impl Pulse {
    /// Whether the keeper, which has gone round so often, has stood still over so many looks that it does not run any more.
    /// A group without one never has.
    pub(crate) fn has_stopped(&mut self, beats: u64, now: Instant) -> bool {
        if beats != self.beats || beats == 0 {
            *self = Pulse { beats, looks: 0, last: Some(now) };
        } else if self.last.is_none_or(|last| now.saturating_duration_since(last) >= LOOK) {
            (self.looks, self.last) = (self.looks + 1, Some(now));
        }
        self.looks >= LOOKS
    }
}

/// Looks that follow each other sooner are one.
const LOOK: Duration = Duration::from_millis(90);
/// The keeper goes round four times a second, and its peers give it up after three.
const LOOKS: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_that_stands_still_has_stopped_and_one_that_goes_round_has_not() {
        let (mut pulse, start) = (Pulse::default(), Instant::now());
        let mut look = |beats, millis| pulse.has_stopped(beats, start + Duration::from_millis(millis));
        assert!((0..1000).all(|at| !look(0, at * 100)), "none");
        assert!((1..1000).all(|at| !look(at, 100_000 + at * 100)), "it runs");
        assert!((0..1000).all(|_| !look(1000, 300_000)), "one moment");
        assert!(!look(1000, 900_000), "one look, however late");
        let looks = (1..100).find(|at| look(1000, 900_000 + at * 100));
        assert_eq!(looks, Some(u64::from(LOOKS) - 1));
        assert!(!look(1001, 990_000), "it runs again");
    }
}
