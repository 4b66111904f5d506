//! Scales: whether what lies in ordinary memory reaches the peers of a host sooner through slots or fetched by the system. Which it is
//! depends on the processor, on the system and on where the ranks run, so both are weighed while they work, each rank for itself.

use std::cell::Cell;
use std::time::{Duration, Instant};

use phalanx_mem::board::WORTH_FETCHING;

/// What one rank has weighed, and whether what it does now counts.
#[derive(Debug)]
pub(crate) struct Scales {
    known: Cell<Known>,
    counts: bool,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    /// How many ranks read what this one offers.
    peers: usize,
    copied_in: Rate,
    copied_out: Rate,
    fetched: Rate,
    /// What is better, as far as is known.
    way: Way,
    /// How many offers go the better way before the other is tried for some, and before that is done again.
    until_trial: u32,
    pause: u32,
    /// How many offers are left of a trial.
    trial: u32,
}

/// How an offer reaches the peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The system fetches it from where it lies: one copy for each peer.
    Fetch,
    /// It is copied to a slot and from there: one copy more, of both sides at once.
    Copy,
}

/// What was done with some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// They were copied to this rank's slot.
    In,
    /// They were copied from a peer's slot.
    Out,
    /// They were fetched from a peer's memory.
    Fetched,
}

/// Nanoseconds a byte, where they are known.
#[derive(Clone, Copy, Debug, Default)]
struct Rate(Option<f64>);

impl Scales {
    pub(crate) fn new(peers: usize) -> Scales {
        Scales { known: Cell::new(Known::nothing(peers)), counts: false }
    }

    /// The way that the next offer goes, one for which there is a choice. What is moved from now on counts.
    pub(crate) fn choose(&mut self) -> Way {
        self.counts = true;
        self.known.get_mut().choice()
    }

    /// The way of one for which there is none. What is moved from now on does not count.
    pub(crate) fn rest(&mut self) -> Way {
        self.counts = false;
        Way::Copy
    }

    /// An offer was made.
    pub(crate) fn count(&mut self) {
        if self.counts {
            self.known.get_mut().count();
        }
    }

    /// The time, if it counts what moving so many bytes takes and they are worth a look at the clock.
    pub(crate) fn start(&self, byte_len: usize) -> Option<Instant> {
        (self.counts && byte_len >= WORTH_FETCHING).then(Instant::now)
    }

    /// Weighs what was done with so many bytes since then.
    pub(crate) fn weigh(&self, what: Move, byte_len: usize, began: Option<Instant>) {
        if let Some(began) = began {
            let mut known = self.known.get();
            known.weigh(what, byte_len, began.elapsed());
            self.known.set(known);
        }
    }
}

impl Known {
    fn nothing(peers: usize) -> Known {
        let (copied_in, copied_out, fetched) = Default::default();
        let (way, until_trial, pause, trial) = (Way::Fetch, FIRST_PAUSE, SHORTEST_PAUSE, 0);
        Known { peers, copied_in, copied_out, fetched, way, until_trial, pause, trial }
    }

    /// The way that the next offer goes. Ranks that offer alike try alike.
    fn choice(&self) -> Way {
        if self.trial > 0 { self.way.other() } else { self.way }
    }

    fn count(&mut self) {
        if self.trial > 0 {
            self.trial -= 1;
            if self.trial == 0 {
                self.judge();
            }
        } else if self.until_trial > 0 {
            self.until_trial -= 1;
        } else {
            self.trial = TRIAL;
        }
    }

    /// Takes note of what moving so many bytes took.
    fn weigh(&mut self, what: Move, byte_len: usize, took: Duration) {
        let way = if what == Move::Fetched { Way::Fetch } else { Way::Copy };
        // A trial begins with lines that are not where they are in steady use.
        if byte_len == 0 || (way != self.way && self.trial > TRIAL - SETTLING) {
            return;
        }
        let rate = match what {
            Move::In => &mut self.copied_in,
            Move::Out => &mut self.copied_out,
            Move::Fetched => &mut self.fetched,
        };
        rate.weigh(took.as_nanos() as f64 / byte_len as f64);
    }

    /// Changes the way where the other one has turned out to be better, and not by a hair.
    fn judge(&mut self) {
        let better = |other: f64, way: f64| other < way * CLEARLY;
        match (self.cost(self.way.other()), self.cost(self.way)) {
            (Some(other), Some(way)) if better(other, way) => {
                (self.way, self.pause) = (self.way.other(), SHORTEST_PAUSE)
            }
            _ => self.pause = (2 * self.pause).min(LONGEST_PAUSE),
        }
        self.until_trial = self.pause;
    }

    /// Nanoseconds a byte that all ranks together spend on what one of them offers, where that is known.
    fn cost(&self, way: Way) -> Option<f64> {
        let peers = self.peers as f64;
        match way {
            Way::Fetch => Some(peers * self.fetched.0?),
            Way::Copy => Some(self.copied_in.0? + peers * self.copied_out.0.or(self.copied_in.0)?),
        }
    }
}

impl Way {
    fn other(self) -> Way {
        match self {
            Way::Fetch => Way::Copy,
            Way::Copy => Way::Fetch,
        }
    }
}

impl Rate {
    /// Follows what is faster at once and what is slower step by step: a moment in which another program ran says nothing.
    fn weigh(&mut self, new: f64) {
        let followed = |old: f64| if new < old { (old + new) / 2.0 } else { new.min(old * STEP) };
        self.0 = Some(self.0.map_or(new, followed));
    }
}

/// How many offers are made before the first trial, and of how many a trial is.
const FIRST_PAUSE: u32 = 16;
const TRIAL: u32 = 24;
/// How many of them do not count.
const SETTLING: u32 = 8;
/// How many offers come between trials. Twice as many come between the next as long as nothing changes, up to the longest pause: then
/// trials cost a hundredth of what the worse way costs.
const SHORTEST_PAUSE: u32 = 256;
const LONGEST_PAUSE: u32 = 4096;
const CLEARLY: f64 = 0.9;
const STEP: f64 = 1.125;

#[cfg(test)]
mod tests {
    use super::*;

    /// What so many offers go through where a KiB takes so many nanoseconds to be copied in or out, and to be fetched.
    fn offered(known: &mut Known, offers: u32, copied: u64, fetched: u64) -> Vec<Way> {
        let offer = |_| {
            let way = known.choice();
            let mut weigh = |what, took| known.weigh(what, 1 << 10, Duration::from_nanos(took));
            match way {
                Way::Fetch => weigh(Move::Fetched, fetched),
                Way::Copy => [Move::In, Move::Out].into_iter().for_each(|what| weigh(what, copied)),
            }
            known.count();
            way
        };
        (0..offers).map(offer).collect()
    }

    fn tried(ways: &[Way], way: Way) -> usize {
        ways.iter().filter(|tried| **tried == way).count()
    }

    #[test]
    fn the_better_way_is_found_and_found_anew_when_it_changes() {
        let mut known = Known::nothing(1);
        offered(&mut known, 100, 100, 150);
        assert_eq!(known.way, Way::Fetch, "two copies are longer than one");
        offered(&mut known, 1000, 100, 300);
        assert_eq!(known.way, Way::Copy);
        offered(&mut known, 20_000, 100, 300);
        assert_eq!(known.way, Way::Copy);
        offered(&mut known, 2 * LONGEST_PAUSE, 100, 100);
        assert_eq!(known.way, Way::Fetch);
    }

    #[test]
    fn more_peers_share_what_was_copied_once() {
        for (peers, way) in [(1, Way::Fetch), (3, Way::Copy)] {
            let mut known = Known::nothing(peers);
            offered(&mut known, 1000, 100, 160);
            assert_eq!(known.way, way, "{peers}");
        }
    }

    #[test]
    fn trials_are_few_and_no_moment_counts_for_much() {
        let mut known = Known::nothing(1);
        let ways = offered(&mut known, 100_000, 100, 150);
        assert!((1..=ways.len() / 50).contains(&tried(&ways, Way::Copy)), "{}", tried(&ways, Way::Copy));
        (0..5).for_each(|_| known.weigh(Move::Fetched, 1 << 10, Duration::from_secs(1)));
        offered(&mut known, 2 * LONGEST_PAUSE, 100, 150);
        assert_eq!(known.way, Way::Fetch);
    }

    #[test]
    fn only_what_there_was_a_choice_for_counts() {
        let mut scales = Scales::new(1);
        assert_eq!(scales.start(WORTH_FETCHING), None);
        assert_eq!((scales.choose(), scales.start(WORTH_FETCHING - 1)), (Way::Fetch, None));
        scales.weigh(Move::Fetched, WORTH_FETCHING, scales.start(WORTH_FETCHING));
        scales.count();
        assert!(scales.known.get().fetched.0.is_some());
        assert_eq!((scales.rest(), scales.start(WORTH_FETCHING)), (Way::Copy, None));
        scales.count();
        assert_eq!(scales.known.get().until_trial, FIRST_PAUSE - 1);
    }

    #[test]
    fn what_was_never_weighed_changes_nothing() {
        let mut known = Known::nothing(1);
        (0..100_000).for_each(|_| known.count());
        known.weigh(Move::Fetched, 0, Duration::from_secs(1));
        assert_eq!((known.way, known.fetched.0), (Way::Fetch, None));
    }
}
