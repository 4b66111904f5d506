//! The measuring itself: each rank times its calls, and a call took as long as its slowest rank.
//!
//! Calls are timed in bursts, which all ranks begin together. A burst is one call, or as many as it takes to last for a
//! given time, so that reading the clock, and leaving the barrier before, cost nothing that counts.

use std::time::{Duration, Instant};

use phalanx::{Group, Result};
use serde_json::{Value, json};

use super::case::{Buffers, Case, Memory};
use crate::figures::quantile;

/// How long to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    /// One case.
    pub(super) budget: Duration,
    /// At least, what is timed at once.
    pub(super) burst: Duration,
}

/// What one rank saw of a case.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    /// Wrong elements.
    wrong: usize,
    /// Calls in a burst.
    calls: usize,
    /// Nanoseconds of each burst.
    bursts: Vec<u64>,
}

/// What all ranks saw together.
#[derive(Debug)]
pub(super) struct Measured {
    /// Microseconds of a call in each burst, in ascending order.
    times: Vec<f64>,
    calls: usize,
    /// Wrong elements over all ranks.
    pub(super) wrong: usize,
}

/// One rank's part: checks the result, warms up, and times calls.
pub(super) fn rank(group: &Group, case: &Case, memory: Memory, pace: Pace) -> Result<Seen> {
    let mut buffers = case.buffers(group, memory)?;
    let mut wrong = 0;
    let last_root = if case.kind.has_root() { case.np - 1 } else { 0 };
    for root in (0..=last_root).step_by(last_root.max(1)) {
        wrong += case.check(group, &mut buffers, root)?;
    }
    buffers.clear();
    let mut calls = Calls { group, case, buffers, done: 0 };
    let each = calls.time(FEWEST)? / FEWEST as u32;
    let warm_up = agree(group, fitting(pace.budget / 10, each, MOST_CALLS))?;
    let each = calls.time(warm_up)? / warm_up as u32;
    let burst = agree(group, fitting(pace.burst, each, MOST_CALLS))?;
    let bursts = agree(group, fitting(pace.budget, each * burst as u32, MOST_BURSTS).max(FEWEST))?;
    let mut seen = Seen { wrong, calls: burst, bursts: Vec::with_capacity(bursts) };
    for _ in 0..bursts {
        group.barrier()?;
        seen.bursts.push(u64::try_from(calls.time(burst)?.as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(seen)
}

/// The calls of one rank. Roots take turns.
struct Calls<'a> {
    group: &'a Group,
    case: &'a Case,
    buffers: Buffers,
    done: usize,
}

impl Calls<'_> {
    /// How long this many calls take.
    fn time(&mut self, calls: usize) -> Result<Duration> {
        let began = Instant::now();
        for _ in 0..calls {
            self.case.run(self.group, &mut self.buffers, self.done % self.case.np)?;
            self.done += 1;
        }
        Ok(began.elapsed())
    }
}

/// How many times `each` fits into `time`, rounded up.
fn fitting(time: Duration, each: Duration, most: usize) -> usize {
    let fitting = time.as_nanos().div_ceil(each.as_nanos().max(1));
    usize::try_from(fitting).unwrap_or(most).clamp(1, most)
}

/// The number that rank 0 has.
fn agree(group: &Group, number: usize) -> Result<usize> {
    let mut number = [number as u64];
    group.broadcast(&mut number, 0)?;
    Ok(number[0] as usize)
}

impl Pace {
    pub(super) fn to_json(self) -> Value {
        json!([self.budget.as_nanos() as u64, self.burst.as_nanos() as u64])
    }

    pub(super) fn from_json(told: &Value) -> Option<Pace> {
        let time = |at: usize| told[at].as_u64().map(Duration::from_nanos);
        Some(Pace { budget: time(0)?, burst: time(1)? })
    }
}

impl Seen {
    pub(super) fn to_json(&self) -> Value {
        json!({ "wrong": self.wrong, "calls": self.calls, "bursts": self.bursts })
    }

    pub(super) fn from_json(told: &Value) -> Option<Seen> {
        let number = |name: &str| told[name].as_u64().map(|number| number as usize);
        let bursts = told["bursts"].as_array()?.iter().map(Value::as_u64).collect::<Option<_>>()?;
        Some(Seen { wrong: number("wrong")?, calls: number("calls")?, bursts })
    }
}

impl Measured {
    pub(super) fn of(ranks: &[Seen]) -> Measured {
        let wrong = ranks.iter().map(|seen| seen.wrong).sum();
        let calls = ranks.first().map_or(1, |seen| seen.calls.max(1));
        let bursts = ranks.iter().map(|seen| seen.bursts.len()).min().unwrap_or(0);
        let slowest = |at: usize| ranks.iter().map(|seen| seen.bursts[at]).max().unwrap_or_default();
        let mut times: Vec<f64> = (0..bursts).map(|at| slowest(at) as f64 / 1e3 / calls as f64).collect();
        times.sort_by(f64::total_cmp);
        Measured { times, calls: calls * bursts, wrong }
    }

    /// Calls that were timed.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    /// Microseconds that this share of the calls did not exceed.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        quantile(&self.times, share)
    }
}

/// Calls to begin with, and bursts at least.
const FEWEST: usize = 5;
const MOST_CALLS: usize = 1_000_000;
const MOST_BURSTS: usize = 100_000;

#[cfg(test)]
mod tests {
    use phalanx::{DType, ReduceOp, Threads};

    use super::super::kind::Kind;
    use super::*;

    fn seen(wrong: usize, calls: usize, bursts: &[u64]) -> Seen {
        Seen { wrong, calls, bursts: bursts.to_vec() }
    }

    #[test]
    fn a_call_takes_as_long_as_its_slowest_rank() {
        let measured = Measured::of(&[seen(1, 10, &[10_000, 30_000, 20_000]), seen(2, 10, &[50_000, 20_000, 20_000])]);
        assert_eq!([0.0, 0.5, 1.0].map(|share| measured.quantile(share)), [2.0, 3.0, 5.0]);
        assert_eq!((measured.calls(), measured.wrong), (30, 3));
    }

    #[test]
    fn what_was_seen_and_the_pace_survive_their_journey() {
        let seen = seen(3, 40, &[1, 2, 3]);
        assert_eq!(Seen::from_json(&seen.to_json()), Some(seen));
        assert_eq!(Seen::from_json(&json!({ "wrong": 0, "calls": 1, "bursts": ["x"] })), None);
        let pace = Pace { budget: Duration::from_secs(3), burst: Duration::from_micros(20) };
        assert_eq!(Pace::from_json(&pace.to_json()), Some(pace));
    }

    #[test]
    fn ranks_measure_the_same_calls_and_one_at_a_time_if_that_is_asked_for() {
        let case = Case::new(Kind::Broadcast, 4096, 3, DType::F32, ReduceOp::Sum);
        for burst in [0, 500] {
            let pace = Pace { budget: Duration::from_millis(2), burst: Duration::from_micros(burst) };
            let ranks = Threads::new(3).run(|group| rank(&group, &case, Memory::Ordinary, pace)).expect("a world");
            let seen: Vec<Seen> = ranks.into_iter().collect::<Result<_>>().expect("a healthy group");
            assert!(seen.iter().all(|seen| seen.wrong == 0 && seen.bursts.len() >= FEWEST), "{seen:?}");
            let shapes: Vec<_> = seen.iter().map(|seen| (seen.calls, seen.bursts.len())).collect();
            assert!(shapes.iter().all(|shape| *shape == shapes[0]), "{shapes:?}");
            assert!(burst > 0 || shapes[0].0 == 1, "{shapes:?}");
        }
    }

    #[test]
    fn fitting_is_never_none_and_never_too_many() {
        let micros = Duration::from_micros;
        assert_eq!(fitting(micros(20), micros(3), 100), 7);
        assert_eq!(fitting(micros(20), micros(30), 100), 1);
        assert_eq!(fitting(micros(20), Duration::ZERO, 100), 100);
    }
}
