//! Turns: when the way that is not thought the better one is tried, so that what changed meanwhile is noticed.

/// Where one rank stands between trials.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    /// How many offers go the better way before the other is tried for some, and before that is done again.
    until_trial: u32,
    pause: u32,
    /// How many offers are left of a trial.
    trial: u32,
}

impl Turns {
    pub(super) fn new() -> Turns {
        Turns { until_trial: FIRST_PAUSE, pause: SHORTEST_PAUSE, trial: 0 }
    }

    /// Whether the next offer goes the other way.
    pub(super) fn is_trial(&self) -> bool {
        self.trial > 0
    }

    /// Whether a trial has just begun, with lines that are not where they are in steady use.
    pub(super) fn is_settling(&self) -> bool {
        self.trial > TRIAL - SETTLING
    }

    /// Whether the next offer is of a trial, or of the last ones before it.
    pub(super) fn is_near_trial(&self) -> bool {
        self.is_trial() || self.until_trial <= FIRST_PAUSE
    }

    /// Counts an offer. True for the last one of a trial, after which it is to be [judged](Turns::judged).
    pub(super) fn count(&mut self) -> bool {
        if self.is_trial() {
            self.trial -= 1;
            return self.trial == 0;
        }
        match self.until_trial.checked_sub(1) {
            Some(left) => self.until_trial = left,
            None => self.trial = TRIAL,
        }
        false
    }

    /// Says what came of a trial: whether the other way is the better one from now on.
    pub(super) fn judged(&mut self, changed: bool) {
        self.pause = if changed { SHORTEST_PAUSE } else { (2 * self.pause).min(LONGEST_PAUSE) };
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
