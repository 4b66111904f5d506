//! Trials: of two ways the one that is not thought the better is tried now and then, so that what changed meanwhile is noticed.

use std::time::Instant;

use phalanx_mem::board::WORTH_FETCHING;

use super::rate::is_clearly_less;

/// Two ways, and where one rank stands between trials.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trials<W> {
    better: W,
    other: W,
    /// How many offers go the better way before the other is tried for some, and before that is done again.
    until_trial: u32,
    pause: u32,
    /// How many offers are left of a trial.
    trial: u32,
}

impl<W: Copy> Trials<W> {
    /// Of these two, the first is thought the better.
    pub(super) fn of(better: W, other: W) -> Trials<W> {
        Trials { better, other, until_trial: FIRST_PAUSE, pause: SHORTEST_PAUSE, trial: 0 }
    }

    /// What is better, as far as is known.
    pub(super) fn better(&self) -> W {
        self.better
    }

    /// The way that the next offer goes. Ranks that offer alike try alike.
    pub(super) fn choice(&self) -> W {
        if self.trial > 0 { self.other } else { self.better }
    }

    /// Whether a trial has just begun, with lines that are not where they are in steady use.
    pub(super) fn is_settling(&self) -> bool {
        self.trial > TRIAL - SETTLING
    }

    /// The time, where so many bytes of the next offer are worth a look at the clock: in a trial, and in the last ones before it.
    pub(super) fn start(&self, byte_len: usize) -> Option<Instant> {
        let is_near_trial = self.trial > 0 || self.until_trial <= FIRST_PAUSE;
        (byte_len >= WORTH_FETCHING && is_near_trial).then(Instant::now)
    }

    /// Counts an offer, and judges after the last one of a trial by what a way costs, where that is known.
    pub(super) fn count(&mut self, cost: impl Fn(W) -> Option<f64>) {
        if self.trial > 0 {
            self.trial -= 1;
            if self.trial == 0 {
                self.judge(cost);
            }
        } else if self.until_trial > 0 {
            self.until_trial -= 1;
        } else {
            self.trial = TRIAL;
        }
    }

    /// Changes the way where the other one has turned out to be better, and not by a hair.
    fn judge(&mut self, cost: impl Fn(W) -> Option<f64>) {
        let costs = (cost(self.other), cost(self.better));
        if is_clearly_less(costs.0, costs.1) {
            (self.better, self.other, self.pause) = (self.other, self.better, SHORTEST_PAUSE);
        } else if costs.0.and(costs.1).is_some() {
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        }
        self.until_trial = self.pause;
    }

    #[cfg(test)]
    pub(super) fn is_fresh_but_for(&self, offers: u32) -> bool {
        self.until_trial == FIRST_PAUSE - offers
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
pub(super) const LONGEST_PAUSE: u32 = 4096;
