//! Scales: whether what lies in ordinary memory reaches the peers of a host sooner through slots or fetched by the system. Which it is
//! depends on the processor, on the system and on where the ranks run, so both are weighed while they work, each rank for itself.

mod order;
mod rate;
mod trials;

use std::cell::Cell;
use std::time::{Duration, Instant};

pub(crate) use order::OrderScale;
use rate::Rate;
use trials::Trials;

/// What one rank has weighed, and whether what it does now counts. A rate is in a cell of its own: all of it moved at once would have to wait
/// for what the rank has just written for its peers.
#[derive(Debug)]
pub(crate) struct Scales {
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

impl Scales {
    pub(crate) fn new(peers: usize) -> Scales {
        let (rates, trials) = (Default::default(), Trials::of(Way::Fetch, Way::Copy));
        Scales { peers, rates, trials, counts: false, unconfirmed: Cell::new(0) }
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

    use super::trials::LONGEST_PAUSE;
    use super::*;

    /// What so many offers go through where a KiB takes so many nanoseconds to be copied in or out, and to be fetched.
    fn offered(scales: &mut Scales, offers: u32, copied: u64, fetched: u64) -> Vec<Way> {
        let offer = |_| {
            let way = scales.choose();
            let (moves, took) = match way {
                Way::Fetch => ([Move::Fetched, Move::Confirmed], fetched / 2),
                Way::Copy => ([Move::In, Move::Out], copied),
            };
            if scales.start(WORTH_FETCHING).is_some() {
                moves.into_iter().for_each(|what| scales.note(what, 1 << 10, Duration::from_nanos(took)));
            }
            scales.count();
            way
        };
        (0..offers).map(offer).collect()
    }

    fn tried(ways: &[Way], way: Way) -> usize {
        ways.iter().filter(|tried| **tried == way).count()
    }

    fn rate(scales: &Scales, what: Move) -> Option<f64> {
        scales.rates[what as usize].get().known()
    }

    #[test]
    fn the_better_way_is_found_and_found_anew_when_it_changes() {
        let mut scales = Scales::new(1);
        offered(&mut scales, 100, 100, 150);
        assert_eq!(scales.trials.better(), Way::Fetch, "two copies are longer than one");
        offered(&mut scales, 1000, 100, 300);
        assert_eq!(scales.trials.better(), Way::Copy);
        offered(&mut scales, 20_000, 100, 300);
        assert_eq!(scales.trials.better(), Way::Copy);
        offered(&mut scales, 2 * LONGEST_PAUSE, 100, 100);
        assert_eq!(scales.trials.better(), Way::Fetch);
    }

    #[test]
    fn more_peers_share_what_was_copied_once() {
        for (peers, way) in [(1, Way::Fetch), (3, Way::Copy)] {
            let mut scales = Scales::new(peers);
            offered(&mut scales, 1000, 100, 160);
            assert_eq!(scales.trials.better(), way, "{peers}");
        }
    }

    #[test]
    fn trials_are_few_and_no_moment_counts_for_much() {
        let mut scales = Scales::new(1);
        let ways = offered(&mut scales, 100_000, 100, 150);
        assert!((1..=ways.len() / 50).contains(&tried(&ways, Way::Copy)), "{}", tried(&ways, Way::Copy));
        (0..5).for_each(|_| scales.note(Move::Fetched, 1 << 10, Duration::from_secs(1)));
        offered(&mut scales, 2 * LONGEST_PAUSE, 100, 150);
        assert_eq!(scales.trials.better(), Way::Fetch);
    }

    #[test]
    fn only_what_there_was_a_choice_for_counts() {
        let mut scales = Scales::new(1);
        assert_eq!(scales.start(WORTH_FETCHING), None);
        assert_eq!((scales.choose(), scales.start(WORTH_FETCHING - 1)), (Way::Fetch, None));
        scales.weigh(Move::Fetched, WORTH_FETCHING, scales.start(WORTH_FETCHING));
        scales.count();
        assert!(rate(&scales, Move::Fetched).is_some());
        assert_eq!(cost(1, &scales.rates, Way::Fetch), None, "it is not confirmed");
        scales.confirmed(scales.start_confirming());
        assert!(cost(1, &scales.rates, Way::Fetch).is_some());
        assert_eq!(scales.start_confirming(), None, "it counts once");
        assert_eq!((scales.rest(), scales.start(WORTH_FETCHING)), (Way::Copy, None));
        scales.count();
        assert!(scales.trials.is_fresh_but_for(1));
    }

    #[test]
    fn what_confirming_takes_is_weighed_with_all_that_it_confirms() {
        let mut scales = Scales::new(1);
        scales.choose();
        (0..4).for_each(|_| scales.weigh(Move::Fetched, WORTH_FETCHING, Some(Instant::now())));
        scales.confirmed(Instant::now().checked_sub(Duration::from_millis(4)));
        let cost = rate(&scales, Move::Confirmed).expect("weighed") * (4 * WORTH_FETCHING) as f64;
        assert!((4e6..4e9).contains(&cost), "{cost} ns");
    }

    #[test]
    fn what_was_never_weighed_changes_nothing() {
        let mut scales = Scales::new(1);
        (0..100_000).for_each(|_| {
            scales.choose();
            scales.count();
        });
        scales.note(Move::Fetched, 0, Duration::from_secs(1));
        assert_eq!((scales.trials.better(), rate(&scales, Move::Fetched)), (Way::Fetch, None));
    }
}
