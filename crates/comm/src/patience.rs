//! How a thread waits: it spins for a moment, then lets others run, then sleeps until its bell rings.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

use crate::bell::Bell;

/// The patience of one wait. More ranks than cores is a normal case, so spinning ends soon.
#[derive(Debug)]
pub(crate) struct Patience<'a> {
    bell: &'a Bell,
    deadline: Option<Instant>,
    idle: u32,
    armed: Option<u32>,
}

impl<'a> Patience<'a> {
    /// Patience until then; for ever without an end.
    pub(crate) fn until(bell: &'a Bell, deadline: Option<Instant>) -> Patience<'a> {
        Patience { bell, deadline, idle: 0, armed: None }
    }

    /// Patience for so long from now; for ever if that is beyond what a clock can tell.
    #[cfg(test)]
    pub(crate) fn new(bell: &'a Bell, timeout: Duration) -> Patience<'a> {
        Patience::until(bell, Instant::now().checked_add(timeout))
    }

    /// Something moved: the next wait begins anew.
    pub(crate) fn renew(&mut self) {
        (self.idle, self.armed) = (0, None);
    }

    /// Whether the wait has just begun. What is waited for mostly comes at once, and whoever looks often sees it sooner.
    pub(crate) fn is_fresh(&self) -> bool {
        self.idle < GLANCES
    }

    /// Whether the wait has become a long one, which a sleep is next to.
    pub(crate) fn is_tried(&self) -> bool {
        self.idle >= SPINS + YIELDS
    }

    /// Waits a little, because a look found nothing; false once the deadline has passed.
    ///
    /// The caller must look again after every call: the sleep only begins when a look after arming found nothing.
    pub(crate) fn wait(&mut self) -> bool {
        self.idle += 1;
        if self.idle <= SPINS {
            // The hint takes longer than a look.
            if !self.is_fresh() {
                hint::spin_loop();
            }
            return true;
        }
        let left = self.deadline.map_or(LONGEST_SLEEP, |deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return false;
        }
        match self.armed.take() {
            _ if self.idle <= SPINS + YIELDS => thread::yield_now(),
            Some(armed) => self.bell.sleep(armed, left.min(LONGEST_SLEEP)),
            None => self.armed = Some(self.bell.arm()),
        }
        true
    }
}

const GLANCES: u32 = 16;
const SPINS: u32 = 100;
const YIELDS: u32 = 200;
/// Bounds how late a deadline that nobody sleeps for is noticed, and what a missed ring could ever cost.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_at_the_deadline_and_not_before() {
        let (bell, began, limit) = (Bell::new().unwrap(), Instant::now(), Duration::from_millis(20));
        let mut patience = Patience::new(&bell, limit);
        while patience.wait() {}
        assert!(began.elapsed() >= limit);
        assert!(!patience.wait());
    }
}
