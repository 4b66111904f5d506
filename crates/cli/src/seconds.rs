//! Times as people write them on the command line: seconds, with or without a fraction.

use std::time::Duration;

/// The time in `text`.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=LONGEST).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("must be a number of seconds from 0 to {LONGEST}"))
}

const LONGEST: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read_and_what_is_none_is_refused() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["-1", "x", "NaN", "1000001", ""] {
            assert_eq!(seconds(text), Err("must be a number of seconds from 0 to 1000000".to_owned()));
        }
    }
}
