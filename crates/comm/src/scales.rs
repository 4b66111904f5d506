//! Scales: whether what lies in ordinary memory reaches the peers of a host sooner through slots or fetched by the system. Which it is
//! depends on the processor, on the system and on where the ranks run, so both are weighed while they work, each rank for itself.

use std::time::Duration;

/// What one rank has weighed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scales {
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
        let (copied_in, copied_out, fetched) = Default::default();
        let (way, until_trial, pause, trial) = (Way::Fetch, FIRST_PAUSE, SHORTEST_PAUSE, 0);
        Scales { peers, copied_in, copied_out, fetched, way, until_trial, pause, trial }
    }

    /// The way that the next offer goes. Ranks that offer alike try alike.
    pub(crate) fn way(&self) -> Way {
        if self.trial > 0 { self.way.other() } else { self.way }
    }

    /// An offer was made.
    pub(crate) fn count(&mut self) {
        match (self.trial, self.until_trial) {
            (0, 0) => self.trial = TRIAL,
            (0, _) => self.until_trial -= 1,
            (1, _) => (self.trial, _) = (0, self.judge()),
            (_, _) => self.trial -= 1,
        }
    }

    /// Takes note of what moving so many bytes took.
    pub(crate) fn weigh(&mut self, what: Move, byte_len: usize, took: Duration) {
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
    fn offered(scales: &mut Scales, offers: u32, copied: u64, fetched: u64) -> Vec<Way> {
        let offer = |_| {
            let way = scales.way();
            let mut weigh = |what, took| scales.weigh(what, 1 << 10, Duration::from_nanos(took));
            match way {
                Way::Fetch => weigh(Move::Fetched, fetched),
                Way::Copy => [Move::In, Move::Out].into_iter().for_each(|what| weigh(what, copied)),
            }
            scales.count();
            way
        };
        (0..offers).map(offer).collect()
    }

    fn tried(ways: &[Way], way: Way) -> usize {
        ways.iter().filter(|tried| **tried == way).count()
    }

    #[test]
    fn the_better_way_is_found_and_found_anew_when_it_changes() {
        let mut scales = Scales::new(1);
        offered(&mut scales, 100, 100, 150);
        assert_eq!(scales.way, Way::Fetch, "two copies are longer than one");
        offered(&mut scales, 1000, 100, 300);
        assert_eq!(scales.way, Way::Copy);
        offered(&mut scales, 20_000, 100, 300);
        assert_eq!(scales.way, Way::Copy);
        offered(&mut scales, 2 * LONGEST_PAUSE, 100, 100);
        assert_eq!(scales.way, Way::Fetch);
    }

    #[test]
    fn more_peers_share_what_was_copied_once() {
        for (peers, way) in [(1, Way::Fetch), (3, Way::Copy)] {
            let mut scales = Scales::new(peers);
            offered(&mut scales, 1000, 100, 160);
            assert_eq!(scales.way, way, "{peers}");
        }
    }

    #[test]
    fn trials_are_few_and_no_moment_counts_for_much() {
        let mut scales = Scales::new(1);
        let ways = offered(&mut scales, 100_000, 100, 150);
        assert!((1..=ways.len() / 50).contains(&tried(&ways, Way::Copy)), "{}", tried(&ways, Way::Copy));
        (0..5).for_each(|_| scales.weigh(Move::Fetched, 1 << 10, Duration::from_secs(1)));
        offered(&mut scales, 2 * LONGEST_PAUSE, 100, 150);
        assert_eq!(scales.way, Way::Fetch);
    }

    #[test]
    fn what_was_never_weighed_changes_nothing() {
        let mut scales = Scales::new(1);
        (0..100_000).for_each(|_| scales.count());
        scales.weigh(Move::Fetched, 0, Duration::from_secs(1));
        assert_eq!((scales.way, scales.fetched.0), (Way::Fetch, None));
    }
}
