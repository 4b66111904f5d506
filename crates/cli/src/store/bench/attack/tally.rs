//! What all tries came to, kind by kind, and how the strangers' process tells it to the one that asks.

use std::time::Duration;

use serde_json::{Value, json};

use super::attempt::Outcome;
use super::kind::Kind;

/// The tries of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Count {
    pub(super) tries: u64,
    /// Those that were sent away.
    pub(super) refused: u64,
    /// Those of them that were told why, encrypted.
    pub(super) told: u64,
    pub(super) admitted: u64,
    /// Bytes that strangers should not have been sent.
    pub(super) disclosed: u64,
    /// Those that never had a connection.
    pub(super) unreached: u64,
    /// Those that the server had not closed when the stranger gave up.
    pub(super) left_open: u64,
    /// The longest time that a connection was kept.
    pub(super) longest: Duration,
}

/// All tries.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tally {
    counts: [Count; Kind::ALL.len()],
}

impl Tally {
    pub(super) fn count(&self, kind: Kind) -> &Count {
        &self.counts[kind as usize]
    }

    pub(super) fn tries(&self) -> u64 {
        self.counts.iter().map(|count| count.tries).sum()
    }

    /// A try that could not connect.
    pub(super) fn add_unreached(&mut self, kind: Kind) {
        let count = &mut self.counts[kind as usize];
        count.tries += 1;
        count.unreached += 1;
    }

    /// A try whose connection lasted for `held`, and was then closed by the server, or not.
    pub(super) fn add(&mut self, kind: Kind, outcome: Outcome, held: Duration, is_closed: bool) {
        let count = &mut self.counts[kind as usize];
        count.tries += 1;
        count.refused += u64::from(is_closed && !outcome.admitted);
        count.told += u64::from(outcome.told);
        count.admitted += u64::from(outcome.admitted);
        count.disclosed += outcome.disclosed as u64;
        count.left_open += u64::from(!is_closed);
        count.longest = count.longest.max(held);
    }

    pub(super) fn to_json(&self) -> Value {
        let object = |kind: Kind| {
            let count = self.count(kind);
            json!({
                "kind": kind.name(),
                "tries": count.tries,
                "refused": count.refused,
                "told": count.told,
                "admitted": count.admitted,
                "disclosed_bytes": count.disclosed,
                "unreached": count.unreached,
                "left_open": count.left_open,
                "longest_s": count.longest.as_secs_f64(),
            })
        };
        Kind::ALL.into_iter().map(object).collect()
    }

    /// The same tally, if `value` is one.
    pub(super) fn from_json(value: &Value) -> Option<Tally> {
        let mut tally = Tally::default();
        for (kind, count) in Kind::ALL.into_iter().zip(value.as_array()?) {
            let number = |name: &str| count.get(name)?.as_u64();
            tally.counts[kind as usize] = Count {
                tries: number("tries")?,
                refused: number("refused")?,
                told: number("told")?,
                admitted: number("admitted")?,
                disclosed: number("disclosed_bytes")?,
                unreached: number("unreached")?,
                left_open: number("left_open")?,
                longest: Duration::try_from_secs_f64(count.get("longest_s")?.as_f64()?).ok()?,
            };
        }
        Some(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_comes_back() {
        let mut tally = Tally::default();
        let outcome = Outcome { admitted: false, told: true, disclosed: 3 };
        tally.add(Kind::OldEpoch, outcome, Duration::from_millis(1500), true);
        tally.add(Kind::Drip, Outcome::default(), Duration::from_secs(5), false);
        tally.add_unreached(Kind::NoKey);
        assert_eq!(tally.tries(), 3);
        assert_eq!((tally.count(Kind::OldEpoch).refused, tally.count(Kind::Drip).refused), (1, 0));
        assert_eq!(Tally::from_json(&tally.to_json()), Some(tally));
        assert_eq!(Tally::from_json(&json!({"done": 3})), None);
    }
}
