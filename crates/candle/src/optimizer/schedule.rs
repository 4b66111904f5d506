//! The learning rate over time: a straight rise, then half a cosine down.

/// How the learning rate changes from step to step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// The highest rate.
    pub peak: f64,
    /// The rate at the end.
    pub least: f64,
    /// How many steps the rise takes.
    pub warmup: u64,
    /// At which step the rate is down.
    pub steps: u64,
}

impl Schedule {
    /// The rate of a step, counted from 0.
    pub fn rate(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.peak * (step + 1) as f64 / (self.warmup + 1) as f64;
        }
        let length = self.steps.saturating_sub(self.warmup).max(1) as f64;
        let share = ((step - self.warmup) as f64 / length).min(1.0);
        self.least + 0.5 * (1.0 + (std::f64::consts::PI * share).cos()) * (self.peak - self.least)
    }
}
