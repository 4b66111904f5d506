//! In which order a rank makes its next offer and joins what its only peer has offered: beside each other, or one after the other. Some
//! processors wait for a peer's lines less when they do both at once, others copy faster when they do nothing else.

use std::time::{Duration, Instant};

use phalanx_mem::board::{Order, WORTH_FETCHING};

use super::rate::{Rate, is_clearly_less};
use super::turns::Turns;

/// What one rank has weighed of both orders.
#[derive(Debug)]
pub(crate) struct OrderScale {
    beside: Rate,
    after: Rate,
    /// What is better, as far as is known.
    better: Order,
    turns: Turns,
}

impl OrderScale {
    pub(crate) fn new() -> OrderScale {
        let (beside, after) = Default::default();
        OrderScale { beside, after, better: Order::Beside, turns: Turns::new() }
    }

    /// The order in which it is done next.
    pub(crate) fn choice(&self) -> Order {
        if self.turns.is_trial() { self.better.other() } else { self.better }
    }

    /// The time, where it is to be weighed what it takes for so many bytes: before and in a trial.
    pub(crate) fn start(&self, byte_len: usize) -> Option<Instant> {
        (byte_len >= WORTH_FETCHING && self.turns.is_near_trial()).then(Instant::now)
    }

    /// It was done for so many bytes, which are weighed where it is known what they took.
    pub(crate) fn count(&mut self, byte_len: usize, took: Option<Duration>) {
        if let Some(took) = took.filter(|_| !self.turns.is_settling()) {
            match self.choice() {
                Order::Beside => self.beside.weigh(byte_len, took),
                Order::After => self.after.weigh(byte_len, took),
            }
        }
        if self.turns.count() {
            let [better, other] = [self.better, self.better.other()].map(|order| self.cost(order));
            let has_changed = is_clearly_less(other, better).unwrap_or(false);
            if has_changed {
                self.better = self.better.other();
            }
            self.turns.judged(has_changed);
        }
    }

    fn cost(&self, order: Order) -> Option<f64> {
        match order {
            Order::Beside => self.beside.known(),
            Order::After => self.after.known(),
        }
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(scale.better, Order::After);
        done(&mut scale, 100_000, 120, 100);
        assert_eq!(scale.better, Order::After);
        done(&mut scale, 20_000, 100, 120);
        assert_eq!(scale.better, Order::Beside);
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
