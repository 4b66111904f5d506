//! How a thread waits: it spins for a moment, then lets others run, then sleeps until its bell rings.

use std::cell::Cell;
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
    /// How often something moved.
    renewed: u32,
    armed: Option<u32>,
    /// Since when it has been tried.
    since: Option<Instant>,
    /// Until when this thread looks on because it is wary.
    looks_until: Option<Instant>,
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
    pub(crate) fn spins(self) -> u32 {
        match self {
            Crowd::Spread => SPINS,
            Crowd::Crowded => 0,
        }
    }
}

impl<'a> Patience<'a> {
    /// Patience until then; for ever without an end.
    pub(crate) fn until(bell: &'a Bell, crowd: Crowd, deadline: Option<Instant>) -> Patience<'a> {
        Patience {
            bell,
            crowd,
            deadline,
            idle: 0,
            renewed: 0,
            armed: None,
            since: None,
            looks_until: None,
            is_long: false,
        }
    }

    /// Patience for so long from now; for ever if that is beyond what a clock can tell.
    #[cfg(test)]
    pub(crate) fn new(bell: &'a Bell, timeout: Duration) -> Patience<'a> {
        Patience::until(bell, Crowd::Spread, Instant::now().checked_add(timeout))
    }

    /// It ends then; never without an end. A call that finds all there at its first look has no use for one, and is over before it would
    /// have reckoned it.
    pub(crate) fn bound(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Something moved: the next wait begins anew. False once the deadline has passed all the same, for which it looks now and then:
    /// what is short is over before it would know the time.
    pub(crate) fn renew(&mut self) -> bool {
        (self.idle, self.armed, self.since, self.looks_until, self.is_long) = (0, None, None, None, false);
        self.renewed = self.renewed.wrapping_add(1);
        !self.is_look_due() || self.deadline.is_none_or(|deadline| Instant::now() < deadline)
    }

    /// Whether so much has moved that it is time to look at the clock.
    pub(crate) fn is_look_due(&self) -> bool {
        self.renewed.is_multiple_of(RENEWALS)
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
            _ if self.idle <= self.crowd.spins() + YIELDS => self.give_way(now),
            Some(armed) => {
                self.is_long = now.duration_since(*self.since.get_or_insert(now)) >= LONG;
                self.bell.sleep(armed, left.min(if self.is_long { LONGEST_SLEEP } else { LONG }));
            }
            None => self.armed = Some(self.bell.arm()),
        }
        true
    }

    /// Lets others run. A thread that is wary looks on for a moment instead, and then sleeps.
    fn give_way(&mut self, now: Instant) {
        if self.looks_until.is_none() && (self.crowd == Crowd::Crowded || !Wariness::of_this_thread()) {
            thread::yield_now();
            if now.elapsed() >= SLICE {
                Wariness::begin();
            }
        } else if now < *self.looks_until.get_or_insert(now + LOOKS) {
            self.idle = self.crowd.spins();
            hint::spin_loop();
        } else {
            self.idle = self.crowd.spins() + YIELDS;
        }
    }
}

/// What a thread has learned of the core that it runs on. To yield to a busy program is to lose its whole slice: whatever comes first
/// is there long before the core is, and peers that waited for this rank went to sleep.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wariness {
    /// For how many waits it yields no more.
    Waits(u32),
    /// Whoever has the core needs it more.
    Never,
}

impl Wariness {
    /// This thread works for others of its process, and may well be late where they compute.
    pub(crate) fn never() {
        WARINESS.set(Wariness::Never);
    }

    /// Whether this wait is one without yields.
    fn of_this_thread() -> bool {
        let Wariness::Waits(left @ 1..) = WARINESS.get() else { return false };
        WARINESS.set(Wariness::Waits(left - 1));
        true
    }

    /// A slice was lost.
    fn begin() {
        if let Wariness::Waits(_) = WARINESS.get() {
            WARINESS.set(Wariness::Waits(WARY));
        }
    }
}

thread_local! {
    static WARINESS: Cell<Wariness> = const { Cell::new(Wariness::Waits(0)) };
}

const GLANCES: u32 = 16;
const SPINS: u32 = 100;
const YIELDS: u32 = 200;
/// How often something moves between two looks at the clock.
const RENEWALS: u32 = 32;
/// A yield that takes this long was to a program that computes.
const SLICE: Duration = Duration::from_micros(500);
/// How many waits a thread remembers that for, of those that came as far as to yield.
const WARY: u32 = 256;
/// How long a wary thread looks on: what it waits for is on its way mostly, and a sleep takes as long.
const LOOKS: Duration = Duration::from_micros(50);
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
    fn a_thread_that_lost_a_slice_yields_no_more_for_a_while() {
        Wariness::begin();
        assert!((0..WARY).all(|_| Wariness::of_this_thread()) && !Wariness::of_this_thread());
        Wariness::never();
        Wariness::begin();
        assert!(!Wariness::of_this_thread());
    }

    #[test]
    fn patience_ends_at_the_deadline_and_not_before() {
        let (bell, began, limit) = (Bell::new().unwrap(), Instant::now(), Duration::from_millis(20));
        let mut patience = Patience::new(&bell, limit);
        while patience.wait() {}
        assert!(began.elapsed() >= limit);
        assert!(!patience.wait());
    }

    #[test]
    fn patience_ends_though_something_moves_all_the_time() {
        let (bell, began, limit) = (Bell::new().unwrap(), Instant::now(), Duration::from_millis(20));
        let mut patience = Patience::new(&bell, limit);
        while patience.renew() && patience.wait() {}
        assert!(began.elapsed() >= limit);
        patience.bound(None);
        assert!((0..2 * RENEWALS).all(|_| patience.renew()));
    }
}
