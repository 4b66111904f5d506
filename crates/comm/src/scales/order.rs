//! In which order a rank makes its next offer and joins what its only peer has offered: beside each other, or one after the other. Some
//! processors wait for a peer's lines less when they do both at once, others copy faster when they do nothing else.

use std::time::{Duration, Instant};

use phalanx_mem::board::Order;

use super::rate::Rate;
use super::trials::Trials;

/// What one rank has weighed of both orders.
#[derive(Debug)]
pub(crate) struct OrderScale {
    /// By the order.
    rates: [Rate; 2],
    trials: Trials<Order>,
}

impl OrderScale {
    pub(crate) fn new() -> OrderScale {
        OrderScale { rates: Default::default(), trials: Trials::of(Order::Beside, Order::After) }
    }

    /// The order in which it is done next.
    pub(crate) fn choice(&self) -> Order {
        self.trials.choice()
    }

    /// The time, where it is to be weighed what it takes for so many bytes.
    pub(crate) fn start(&self, byte_len: usize) -> Option<Instant> {
        self.trials.start(byte_len)
    }

    /// It was done for so many bytes, which are weighed where it is known what they took.
    pub(crate) fn count(&mut self, byte_len: usize, took: Option<Duration>) {
        if let Some(took) = took.filter(|_| !self.trials.is_settling()) {
            self.rates[self.choice() as usize].weigh(byte_len, took);
        }
        self.trials.count(|order| self.rates[order as usize].known());
    }
}

#[cfg(test)]
mod tests {
    use phalanx_mem::board::WORTH_FETCHING;

    use super::*;

    /// The orders in which so much is done where a KiB takes so many nanoseconds.
    fn done(scale: &mut OrderScale, offers: usize, beside: u64, after: u64) -> Vec<Order> {
        let offer = |_| {
            let order = scale.choice();
            let took = if order == Order::Beside { beside } else { after };
            scale.count(1 << 10, Some(Duration::from_nanos(took)));
            order
        };
        (0..offers).map(offer).collect()
    }

    #[test]
    fn the_better_order_is_found_and_kept() {
        let mut scale = OrderScale::new();
        done(&mut scale, 100, 120, 100);
        assert_eq!(scale.trials.better(), Order::After);
        done(&mut scale, 100_000, 120, 100);
        assert_eq!(scale.trials.better(), Order::After);
        done(&mut scale, 20_000, 100, 120);
        assert_eq!(scale.trials.better(), Order::Beside);
        let tried = done(&mut scale, 100_000, 100, 101).into_iter().filter(|order| *order == Order::After).count();
        assert!((1..=2_000).contains(&tried), "{tried}");
    }

    #[test]
    fn the_clock_is_looked_at_about_trials_only() {
        let mut scale = OrderScale::new();
        assert!(scale.start(WORTH_FETCHING - 1).is_none());
        let looks = (0..100_000).filter(|_| {
            let began = scale.start(WORTH_FETCHING);
            scale.count(WORTH_FETCHING, began.map(|_| Duration::from_micros(3)));
            began.is_some()
        });
        let looks = looks.count();
        assert!((40..=2_000).contains(&looks), "{looks}");
    }
}
