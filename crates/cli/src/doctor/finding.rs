//! What a check has found, and what to do about it.

use serde_json::{Value, json};

/// The outcome of one check.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    /// What was looked at.
    pub(super) check: &'static str,
    pub(super) level: Level,
    /// What there is, in a few words.
    pub(super) found: String,
    pub(super) advice: Option<Advice>,
}

/// How good it is; what is worse is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Ok,
    /// It works, but not as fast as it could.
    Slow,
    /// Something will fail, or is less safe than it should be.
    Wrong,
}

/// What to do, one line each.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Advice {
    pub(super) why: String,
    pub(super) how: String,
}

impl Finding {
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, level: Level::Ok, found: found.into(), advice: None }
    }

    pub(super) fn slow(check: &'static str, found: impl Into<String>, why: &str, how: &str) -> Finding {
        Finding::ok(check, found).but(Level::Slow, why, how)
    }

    pub(super) fn wrong(check: &'static str, found: impl Into<String>, why: &str, how: &str) -> Finding {
        Finding::ok(check, found).but(Level::Wrong, why, how)
    }

    pub(super) fn to_json(&self) -> Value {
        let advice = self.advice.as_ref();
        let (why, how) = (advice.map(|advice| &advice.why), advice.map(|advice| &advice.how));
        json!({ "check": self.check, "level": self.level.name(), "found": self.found, "why": why, "how": how })
    }

    fn but(self, level: Level, why: &str, how: &str) -> Finding {
        let advice = Some(Advice { why: why.to_owned(), how: how.to_owned() });
        Finding { level, advice, ..self }
    }
}

impl Level {
    pub(super) fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Slow => "slow",
            Level::Wrong => "wrong",
        }
    }
}

/// A number of bytes in the unit that suits it.
pub(super) fn amount(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (bytes.max(1).ilog2() / 10) as usize;
    let scaled = bytes as f64 / (1_u64 << (10 * unit)) as f64;
    let digits = usize::from(unit > 0 && scaled < 10.0 && scaled.fract() > 0.0);
    format!("{scaled:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short_and_in_the_unit_that_suits() {
        let shown = [0, 1, 1023, 1024, 1536, 8 << 20, 23_u64 << 30, u64::MAX].map(amount);
        assert_eq!(shown, ["0 bytes", "1 bytes", "1023 bytes", "1 KiB", "1.5 KiB", "8 MiB", "23 GiB", "16 EiB"]);
    }

    #[test]
    fn what_is_wrong_comes_with_why_and_how() {
        let told = Finding::wrong("files", "3", "too few", "ulimit -n 4096").to_json();
        let expected =
            json!({ "check": "files", "level": "wrong", "found": "3", "why": "too few", "how": "ulimit -n 4096" });
        assert_eq!(told, expected);
        assert_eq!(Finding::ok("files", "4096").to_json()["why"], Value::Null);
    }
}
