//! What one step was like, and what a whole run came to, as the first rank says it.

use serde_json::{Value, json};

/// One step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lap {
    /// Counted from 1: how many steps have been made.
    pub(super) step: u64,
    pub(super) loss: f64,
    pub(super) tokens_per_s: f64,
    pub(super) comm_wait_ms: f64,
    pub(super) step_ms: f64,
    /// What the first rank has in memory.
    pub(super) memory_bytes: u64,
}

impl Lap {
    pub(super) fn to_json(self) -> Value {
        json!({
            "step": self.step,
            "loss": self.loss,
            "tokens_per_s": self.tokens_per_s.round(),
            "comm_wait_ms": (self.comm_wait_ms * 1e3).round() / 1e3,
            "step_ms": (self.step_ms * 1e3).round() / 1e3,
            "memory_bytes": self.memory_bytes,
        })
    }

    pub(super) fn from_json(told: &Value) -> Option<Lap> {
        // JSON has no word for what is no number, which a loss may come to.
        let number =
            |key: &str| told.get(key).and_then(|number| number.as_f64().or(number.is_null().then_some(f64::NAN)));
        Some(Lap {
            step: told["step"].as_u64()?,
            loss: number("loss")?,
            tokens_per_s: number("tokens_per_s")?,
            comm_wait_ms: number("comm_wait_ms")?,
            step_ms: number("step_ms")?,
            memory_bytes: told["memory_bytes"].as_u64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lap_survives_its_journey() {
        let lap = Lap { step: 3, loss: 4.1, tokens_per_s: 5.0, comm_wait_ms: 0.25, step_ms: 7.5, memory_bytes: 9 };
        assert_eq!(Lap::from_json(&lap.to_json()), Some(lap));
        assert_eq!(Lap::from_json(&json!({ "sample": "x" })), None);
        for loss in [f64::NAN, f64::INFINITY] {
            let told = Lap::from_json(&Lap { loss, ..lap }.to_json());
            assert!(told.is_some_and(|told| told.loss.is_nan() && told.step == 3));
        }
    }
}
