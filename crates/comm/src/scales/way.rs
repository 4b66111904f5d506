//! By which way an offer reaches the peers sooner: through a slot or fetched by the system.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::rate::Rate;
use super::trials::Trials;

/// What one rank has weighed, and whether what it does now counts. A rate is in a cell of its own: all of it moved at once would have to wait
/// for what the rank has just written for its peers.
#[derive(Debug)]
pub(crate) struct WayScale {
    /// How many ranks read what this one offers.
    peers: usize,
    /// By what was done.
    rates: [Cell<Rate>; 4],
    trials: Trials<Way>,
    counts: bool,
    /// How many bytes that count were fetched and are not confirmed.
    unconfirmed: Cell<usize>,
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

impl WayScale {
    /// Of a rank with so many peers, where this way is thought the better.
    pub(crate) fn new(peers: usize, better: Way) -> WayScale {
        let other = if better == Way::Fetch { Way::Copy } else { Way::Fetch };
        let (rates, trials) = (Default::default(), Trials::of(better, other));
        WayScale { peers, rates, trials, counts: false, unconfirmed: Cell::new(0) }
    }

    /// The way that the next offer goes, one for which there is a choice. What is moved from now on counts.
    pub(crate) fn choose(&mut self) -> Way {
        self.counts = true;
        self.trials.choice()
    }

    /// The way of one for which there is none. What is moved from now on does not count.
    pub(crate) fn rest(&mut self) -> Way {
        self.counts = false;
        Way::Copy
    }

    /// An offer was made.
    pub(crate) fn count(&mut self) {
        if self.counts {
            let (peers, rates) = (self.peers, &self.rates);
            self.trials.count(|way| cost(peers, rates, way));
        }
    }

    /// The time, if it counts what moving so many bytes takes, and is to be weighed.
    pub(crate) fn start(&self, byte_len: usize) -> Option<Instant> {
        if self.counts { self.trials.start(byte_len) } else { None }
    }

    /// Weighs what was done with so many bytes since then.
    pub(crate) fn weigh(&self, what: Move, byte_len: usize, began: Option<Instant>) {
        if let Some(began) = began {
            self.note(what, byte_len, began.elapsed());
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

    /// Takes note of what moving so many bytes took.
    fn note(&self, what: Move, byte_len: usize, took: Duration) {
        let way = if matches!(what, Move::Fetched | Move::Confirmed) { Way::Fetch } else { Way::Copy };
        if way == self.trials.better() || !self.trials.is_settling() {
            let rate = &self.rates[what as usize];
            let mut weighed = rate.get();
            weighed.weigh(byte_len, took);
            rate.set(weighed);
        }
    }
}

/// Nanoseconds a byte that all ranks together spend on what one of them offers to so many others, where that is known.
fn cost(peers: usize, rates: &[Cell<Rate>; 4], way: Way) -> Option<f64> {
    let (peers, known) = (peers as f64, |what| rates[what as usize].get().known());
    match way {
        Way::Fetch => Some(peers * (known(Move::Fetched)? + known(Move::Confirmed)?)),
        Way::Copy => Some(known(Move::In)? + peers * known(Move::Out).or(known(Move::In))?),
    }
}

#[cfg(test)]
mod tests {
    use phalanx_mem::board::WORTH_FETCHING;

    use super::*;
    use crate::scales::trials::LONGEST_PAUSE;

    /// What so many offers go through where a KiB takes so many nanoseconds to be copied in or out, and to be fetched.
    fn offered(scale: &mut WayScale, offers: u32, copied: u64, fetched: u64) -> Vec<Way> {
        let offer = |_| {
            let way = scale.choose();
            let (moves, took) = match way {
                Way::Fetch => ([Move::Fetched, Move::Confirmed], fetched / 2),
                Way::Copy => ([Move::In, Move::Out], copied),
            };
            if scale.start(WORTH_FETCHING).is_some() {
                moves.into_iter().for_each(|what| scale.note(what, 1 << 10, Duration::from_nanos(took)));
            }
            scale.count();
            way
        };
        (0..offers).map(offer).collect()
    }

    fn tried(ways: &[Way], way: Way) -> usize {
        ways.iter().filter(|tried| **tried == way).count()
    }

    fn rate(scale: &WayScale, what: Move) -> Option<f64> {
        scale.rates[what as usize].get().known()
    }

    #[test]
    fn the_better_way_is_found_and_found_anew_when_it_changes() {
        let mut scale = WayScale::new(1, Way::Fetch);
        offered(&mut scale, 100, 100, 150);
        assert_eq!(scale.trials.better(), Way::Fetch, "two copies are longer than one");
        offered(&mut scale, 1000, 100, 300);
        assert_eq!(scale.trials.better(), Way::Copy);
        offered(&mut scale, 20_000, 100, 300);
        assert_eq!(scale.trials.better(), Way::Copy);
        offered(&mut scale, 2 * LONGEST_PAUSE, 100, 100);
        assert_eq!(scale.trials.better(), Way::Fetch);
    }

    #[test]
    fn more_peers_share_what_was_copied_once() {
        for (peers, way) in [(1, Way::Fetch), (3, Way::Copy)] {
            let mut scale = WayScale::new(peers, Way::Fetch);
            offered(&mut scale, 1000, 100, 160);
            assert_eq!(scale.trials.better(), way, "{peers}");
        }
    }

    #[test]
    fn trials_are_few_and_no_moment_counts_for_much() {
        let mut scale = WayScale::new(1, Way::Fetch);
        let ways = offered(&mut scale, 100_000, 100, 150);
        assert!((1..=ways.len() / 50).contains(&tried(&ways, Way::Copy)), "{}", tried(&ways, Way::Copy));
        (0..5).for_each(|_| scale.note(Move::Fetched, 1 << 10, Duration::from_secs(1)));
        offered(&mut scale, 2 * LONGEST_PAUSE, 100, 150);
        assert_eq!(scale.trials.better(), Way::Fetch);
    }

    #[test]
    fn only_what_there_was_a_choice_for_counts() {
        let mut scale = WayScale::new(1, Way::Fetch);
        assert_eq!(scale.start(WORTH_FETCHING), None);
        assert_eq!((scale.choose(), scale.start(WORTH_FETCHING - 1)), (Way::Fetch, None));
        scale.weigh(Move::Fetched, WORTH_FETCHING, scale.start(WORTH_FETCHING));
        scale.count();
        assert!(rate(&scale, Move::Fetched).is_some());
        assert_eq!(cost(1, &scale.rates, Way::Fetch), None, "it is not confirmed");
        scale.confirmed(scale.start_confirming());
        assert!(cost(1, &scale.rates, Way::Fetch).is_some());
        assert_eq!(scale.start_confirming(), None, "it counts once");
        assert_eq!((scale.rest(), scale.start(WORTH_FETCHING)), (Way::Copy, None));
        scale.count();
        assert!(scale.trials.is_fresh_but_for(1));
    }

    #[test]
    fn what_confirming_takes_is_weighed_with_all_that_it_confirms() {
        let mut scale = WayScale::new(1, Way::Fetch);
        scale.choose();
        (0..4).for_each(|_| scale.weigh(Move::Fetched, WORTH_FETCHING, Some(Instant::now())));
        scale.confirmed(Instant::now().checked_sub(Duration::from_millis(4)));
        let cost = rate(&scale, Move::Confirmed).expect("weighed") * (4 * WORTH_FETCHING) as f64;
        assert!((4e6..4e9).contains(&cost), "{cost} ns");
    }

    #[test]
    fn a_trial_that_left_something_unknown_is_made_again_soon() {
        let mut scale = WayScale::new(1, Way::Copy);
        offered(&mut scale, 100, 150, 100);
        assert_eq!(scale.trials.better(), Way::Fetch, "all is known after one");
        let mut scale = WayScale::new(1, Way::Copy);
        let ways: Vec<_> = (0..2000).map(|_| (scale.choose(), scale.count()).0).collect();
        assert!(tried(&ways, Way::Fetch) > 2000 / 16, "{}", tried(&ways, Way::Fetch));
    }

    #[test]
    fn what_was_never_weighed_changes_nothing() {
        let mut scale = WayScale::new(1, Way::Fetch);
        (0..100_000).for_each(|_| {
            scale.choose();
            scale.count();
        });
        scale.note(Move::Fetched, 0, Duration::from_secs(1));
        assert_eq!((scale.trials.better(), rate(&scale, Move::Fetched)), (Way::Fetch, None));
    }
}
