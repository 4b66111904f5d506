//! How a thread waits: it spins for a moment, then lets others run, then sleeps until its bell rings.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

use crate::bell::Bell;

/// The patience of one wait.
#[derive(Debug)]
pub(crate) struct Patience<'a> {
    bell: &'a Bell,
    crowd: Crowd,
    deadline: Option<Instant>,
    idle: u32,
    armed: Option<u32>,
    /// Since when it has been tried.
    since: Option<Instant>,
    is_long: bool,
}

/// Whether the ranks of a host have a core each. Where they have not, what one waits for is done by another that waits for
/// its core, and every look keeps it from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crowd {
    /// A core for each.
    Spread,
    /// More ranks than cores.
    Crowded,
}

impl Crowd {
    /// That of so many ranks, where this process may run on so many cores. Whoever binds a process to a single core is
    /// taken to have bound the others elsewhere.
    pub(crate) fn of(ranks: usize, cores: usize) -> Crowd {
        if cores > 1 && ranks > cores { Crowd::Crowded } else { Crowd::Spread }
    }

    /// How often to look before others are let run. None of the ranks that share a core has moved since the last look.
    fn spins(self) -> u32 {
        match self {
            Crowd::Spread => SPINS,
            Crowd::Crowded => 0,
        }
    }
}

impl<'a> Patience<'a> {
    /// Patience until then; for ever without an end.
    pub(crate) fn until(bell: &'a Bell, crowd: Crowd, deadline: Option<Instant>) -> Patience<'a> {
        Patience { bell, crowd, deadline, idle: 0, armed: None, since: None, is_long: false }
    }

    /// Patience for so long from now; for ever if that is beyond what a clock can tell.
    #[cfg(test)]
    pub(crate) fn new(bell: &'a Bell, timeout: Duration) -> Patience<'a> {
        Patience::until(bell, Crowd::Spread, Instant::now().checked_add(timeout))
    }

    /// It ends then; never without an end.
    pub(crate) fn bound(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Something moved: the next wait begins anew.
    pub(crate) fn renew(&mut self) {
        (self.idle, self.armed, self.since, self.is_long) = (0, None, None, false);
    }

    /// Whether the wait has just begun. What is waited for mostly comes at once, and whoever looks often sees it sooner.
    pub(crate) fn is_fresh(&self) -> bool {
        self.idle < GLANCES
    }

    /// Whether the wait has become a long one, which a sleep is next to.
    pub(crate) fn is_tried(&self) -> bool {
        self.idle >= self.crowd.spins() + YIELDS
    }

    /// Whether the wait is so long that something may be wrong.
    pub(crate) fn is_long(&self) -> bool {
        self.is_long
    }

    /// Waits a little, because a look found nothing; false once the deadline has passed.
    ///
    /// The caller must look again after every call: the sleep only begins when a look after arming found nothing.
    pub(crate) fn wait(&mut self) -> bool {
        self.idle += 1;
        if self.idle <= self.crowd.spins() {
            // The hint takes longer than a look.
            if !self.is_fresh() {
                hint::spin_loop();
            }
            return true;
        }
        let now = Instant::now();
        let left = self.deadline.map_or(LONGEST_SLEEP, |deadline| deadline.saturating_duration_since(now));
        if left.is_zero() {
            return false;
        }
        match self.armed.take() {
            _ if self.idle <= self.crowd.spins() + YIELDS => thread::yield_now(),
            Some(armed) => {
                self.is_long = now.duration_since(*self.since.get_or_insert(now)) >= LONG;
                self.bell.sleep(armed, left.min(if self.is_long { LONGEST_SLEEP } else { LONG }));
            }
            None => self.armed = Some(self.bell.arm()),
        }
        true
    }
}

const GLANCES: u32 = 16;
const SPINS: u32 = 100;
const YIELDS: u32 = 200;
/// Ranks are often this late, but not without a reason.
const LONG: Duration = Duration::from_millis(50);
/// Bounds how late a deadline that nobody sleeps for is noticed, and what a missed ring could ever cost.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_crowded_where_there_are_more_than_cores() {
        let crowds = [(2, 2), (3, 2), (8, 1)].map(|(ranks, cores)| Crowd::of(ranks, cores));
        assert_eq!(crowds, [Crowd::Spread, Crowd::Crowded, Crowd::Spread]);
    }

    #[test]
    fn patience_ends_at_the_deadline_and_not_before() {
        let (bell, began, limit) = (Bell::new().unwrap(), Instant::now(), Duration::from_millis(20));
        let mut patience = Patience::new(&bell, limit);
        while patience.wait() {}
        assert!(began.elapsed() >= limit);
        assert!(!patience.wait());
    }
}
