//! The measuring itself: each rank times every call, and a call took as long as its slowest rank.

use std::time::{Duration, Instant};

use phalanx::{Group, Result};

use super::case::Case;

/// What one rank saw.
#[derive(Debug)]
pub(super) struct Seen {
    times: Vec<Duration>,
    wrong: usize,
}

/// What all ranks saw together.
#[derive(Debug)]
pub(super) struct Measured {
    /// The time of each call, in ascending order.
    times: Vec<Duration>,
    /// Wrong bytes over all ranks.
    pub(super) wrong: usize,
}

/// One rank's part: checks the result once, warms up, then times calls for about `budget`.
pub(super) fn rank(group: &Group, case: &Case, budget: Duration) -> Result<Seen> {
    let mut buffers = case.buffers(group.rank());
    case.run(group, &mut buffers)?;
    let wrong = case.wrong(group.rank(), &buffers.output);
    let warm_up = Instant::now();
    for _ in 0..WARM_UPS {
        case.run(group, &mut buffers)?;
    }
    let iterations = agree(group, warm_up.elapsed() / WARM_UPS, budget)?;
    let mut times = Vec::with_capacity(iterations);
    group.barrier()?;
    for _ in 0..iterations {
        let began = Instant::now();
        case.run(group, &mut buffers)?;
        times.push(began.elapsed());
    }
    group.barrier()?;
    Ok(Seen { times, wrong })
}

/// How many calls fit the budget, as rank 0 sees it.
fn agree(group: &Group, each: Duration, budget: Duration) -> Result<usize> {
    let fitting = budget.as_nanos() / each.as_nanos().max(1);
    let mut iterations = [fitting.clamp(FEWEST, MOST) as u64];
    group.broadcast(&mut iterations, 0)?;
    Ok(iterations[0] as usize)
}

impl Measured {
    pub(super) fn of(ranks: Vec<Seen>) -> Measured {
        let wrong = ranks.iter().map(|seen| seen.wrong).sum();
        let iterations = ranks.first().map_or(0, |seen| seen.times.len());
        let slowest = |at: usize| ranks.iter().map(|seen| seen.times[at]).max().unwrap_or_default();
        let mut times: Vec<Duration> = (0..iterations).map(slowest).collect();
        times.sort_unstable();
        Measured { times, wrong }
    }

    pub(super) fn iterations(&self) -> usize {
        self.times.len()
    }

    /// The time that this share of the calls did not exceed.
    pub(super) fn quantile(&self, share: f64) -> Duration {
        let last = self.times.len().saturating_sub(1);
        self.times.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
    }
}

const WARM_UPS: u32 = 3;
const FEWEST: u128 = 5;
const MOST: u128 = 20_000;
