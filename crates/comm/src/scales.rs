//! Scales: whether what lies in ordinary memory reaches the peers of a host sooner through slots or fetched by the system. Which it is
//! depends on the processor, on the system and on where the ranks run, so both are weighed while they work, each rank for itself.

mod order;
mod rate;
mod trials;

use std::cell::Cell;
use std::time::{Duration, Instant};

pub(crate) use order::OrderScale;
use phalanx_mem::board::WORTH_FETCHING;
use rate::Rate;
use trials::Trials;

/// What one rank has weighed, and whether what it does now counts.
#[derive(Debug)]
pub(crate) struct Scales {
    known: Cell<Known>,
    counts: bool,
    /// How many bytes that count were fetched and are not confirmed.
    unconfirmed: Cell<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    /// How many ranks read what this one offers.
    peers: usize,
    copied_in: Rate,
    copied_out: Rate,
    fetched: Rate,
    confirmed: Rate,
    trials: Trials<Way>,
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
    /// What was fetched was seen to come from the peers' processes, which takes a call of the system, too.
    Confirmed,
}

impl Scales {
    pub(crate) fn new(peers: usize) -> Scales {
        Scales { known: Cell::new(Known::nothing(peers)), counts: false, unconfirmed: Cell::new(0) }
    }

    /// The way that the next offer goes, one for which there is a choice. What is moved from now on counts.
    pub(crate) fn choose(&mut self) -> Way {
        self.counts = true;
        self.known.get_mut().trials.choice()
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
            if what == Move::Fetched {
                self.unconfirmed.update(|before| before + byte_len);
            }
        }
    }

    /// The time, if there is anything to confirm that counts.
    pub(crate) fn start_confirming(&self) -> Option<Instant> {
        (self.unconfirmed.get() > 0).then(Instant::now)
    }

    /// Weighs what confirming all that was fetched took.
    pub(crate) fn confirmed(&self, began: Option<Instant>) {
        self.weigh(Move::Confirmed, self.unconfirmed.take(), began);
    }
}

impl Known {
    fn nothing(peers: usize) -> Known {
        let (copied_in, copied_out, fetched, confirmed) = Default::default();
        Known { peers, copied_in, copied_out, fetched, confirmed, trials: Trials::of(Way::Fetch, Way::Copy) }
    }

    fn count(&mut self) {
        let known = *self;
        self.trials.count(|way| known.cost(way));
    }

    /// Takes note of what moving so many bytes took.
    fn weigh(&mut self, what: Move, byte_len: usize, took: Duration) {
        let way = if matches!(what, Move::Fetched | Move::Confirmed) { Way::Fetch } else { Way::Copy };
        if way != self.trials.better() && self.trials.is_settling() {
            return;
        }
        let rate = match what {
            Move::In => &mut self.copied_in,
            Move::Out => &mut self.copied_out,
            Move::Fetched => &mut self.fetched,
            Move::Confirmed => &mut self.confirmed,
        };
        rate.weigh(byte_len, took);
    }

    /// Nanoseconds a byte that all ranks together spend on what one of them offers, where that is known.
    fn cost(&self, way: Way) -> Option<f64> {
        let peers = self.peers as f64;
        match way {
            Way::Fetch => Some(peers * (self.fetched.known()? + self.confirmed.known()?)),
            Way::Copy => Some(self.copied_in.known()? + peers * self.copied_out.known().or(self.copied_in.known())?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::trials::LONGEST_PAUSE;
    use super::*;

    /// What so many offers go through where a KiB takes so many nanoseconds to be copied in or out, and to be fetched.
    fn offered(known: &mut Known, offers: u32, copied: u64, fetched: u64) -> Vec<Way> {
        let offer = |_| {
            let way = known.trials.choice();
            let mut weigh = |what, took| known.weigh(what, 1 << 10, Duration::from_nanos(took));
            match way {
                Way::Fetch => [Move::Fetched, Move::Confirmed].into_iter().for_each(|what| weigh(what, fetched / 2)),
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
        assert_eq!(known.trials.better(), Way::Fetch, "two copies are longer than one");
        offered(&mut known, 1000, 100, 300);
        assert_eq!(known.trials.better(), Way::Copy);
        offered(&mut known, 20_000, 100, 300);
        assert_eq!(known.trials.better(), Way::Copy);
        offered(&mut known, 2 * LONGEST_PAUSE, 100, 100);
        assert_eq!(known.trials.better(), Way::Fetch);
    }

    #[test]
    fn more_peers_share_what_was_copied_once() {
        for (peers, way) in [(1, Way::Fetch), (3, Way::Copy)] {
            let mut known = Known::nothing(peers);
            offered(&mut known, 1000, 100, 160);
            assert_eq!(known.trials.better(), way, "{peers}");
        }
    }

    #[test]
    fn trials_are_few_and_no_moment_counts_for_much() {
        let mut known = Known::nothing(1);
        let ways = offered(&mut known, 100_000, 100, 150);
        assert!((1..=ways.len() / 50).contains(&tried(&ways, Way::Copy)), "{}", tried(&ways, Way::Copy));
        (0..5).for_each(|_| known.weigh(Move::Fetched, 1 << 10, Duration::from_secs(1)));
        offered(&mut known, 2 * LONGEST_PAUSE, 100, 150);
        assert_eq!(known.trials.better(), Way::Fetch);
    }

    #[test]
    fn only_what_there_was_a_choice_for_counts() {
        let mut scales = Scales::new(1);
        assert_eq!(scales.start(WORTH_FETCHING), None);
        assert_eq!((scales.choose(), scales.start(WORTH_FETCHING - 1)), (Way::Fetch, None));
        scales.weigh(Move::Fetched, WORTH_FETCHING, scales.start(WORTH_FETCHING));
        scales.count();
        assert!(scales.known.get().fetched.known().is_some());
        assert_eq!(scales.known.get().cost(Way::Fetch), None, "it is not confirmed");
        scales.confirmed(scales.start_confirming());
        assert!(scales.known.get().cost(Way::Fetch).is_some());
        assert_eq!(scales.start_confirming(), None, "it counts once");
        assert_eq!((scales.rest(), scales.start(WORTH_FETCHING)), (Way::Copy, None));
        scales.count();
        assert!(scales.known.get().trials.is_fresh_but_for(1));
    }

    #[test]
    fn what_confirming_takes_is_weighed_with_all_that_it_confirms() {
        let mut scales = Scales::new(1);
        scales.choose();
        (0..4).for_each(|_| scales.weigh(Move::Fetched, WORTH_FETCHING, Some(Instant::now())));
        scales.confirmed(Instant::now().checked_sub(Duration::from_millis(4)));
        let cost = scales.known.get().confirmed.known().expect("weighed") * (4 * WORTH_FETCHING) as f64;
        assert!((4e6..4e9).contains(&cost), "{cost} ns");
    }

    #[test]
    fn what_was_never_weighed_changes_nothing() {
        let mut known = Known::nothing(1);
        (0..100_000).for_each(|_| known.count());
        known.weigh(Move::Fetched, 0, Duration::from_secs(1));
        assert_eq!((known.trials.better(), known.fetched.known()), (Way::Fetch, None));
    }
}
