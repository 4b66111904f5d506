//! Until when: the moments by which a call stops waiting and by which it is over.

use std::time::{Duration, Instant};

use crate::moment::{self, left};

/// The two ends of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// When it stops waiting for what is not there yet.
    pub(super) wait: Instant,
    /// When it is over: a little later, so that a cancel can be answered, and that even a call without time asks once.
    pub(super) end: Instant,
}

impl Times {
    pub(super) fn after(timeout: Duration) -> Times {
        let wait = moment::after(timeout);
        Times { wait, end: wait + GRACE }
    }
}

/// Pauses that grow from one to the next, of random length, so that many clients do not come all at once.
#[derive(Debug)]
pub(super) struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    pub(super) fn new() -> Pauses {
        Pauses { next: FIRST, longest: LONGEST }
    }

    /// Pauses that begin and stay short, where it is others who were faster.
    pub(super) fn short() -> Pauses {
        Pauses { next: SHORT, longest: FIRST }
    }

    /// Sleeps a while, at the most until `until`; whether there is time left after it.
    pub(super) fn pause(&mut self, until: Instant) -> bool {
        let time = self.next.mul_f64(0.5 + fastrand::f64());
        self.next = (self.next * 2).min(self.longest);
        std::thread::sleep(time.min(left(until)));
        Instant::now() < until
    }
}

const GRACE: Duration = Duration::from_millis(150);
const FIRST: Duration = Duration::from_millis(10);
const SHORT: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end_in_time() {
        let (mut pauses, start) = (Pauses::new(), Instant::now());
        let until = start + Duration::from_millis(60);
        let mut count = 0;
        while pauses.pause(until) {
            count += 1;
        }
        assert!((1..=10).contains(&count), "{count}");
        assert!(start.elapsed() >= Duration::from_millis(60));
    }

    #[test]
    fn short_pauses_stay_short() {
        let (mut pauses, now) = (Pauses::short(), Instant::now());
        for _ in 0..20 {
            pauses.pause(now);
        }
        assert_eq!(pauses.next, FIRST);
    }
}
