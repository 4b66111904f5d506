//! Times as people write them on the command line: seconds, with or without a fraction.

use std::time::Duration;

/// The time in `text`.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    seconds_between(text, 0.0, LONGEST)
}

/// The time in `text`, which may be so short and so long.
pub(crate) fn seconds_between(text: &str, least: f64, most: f64) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (least..=most).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("must be a number of seconds from {least} to {most}"))
}

/// The time in `text` that something may take: within none, nothing comes about.
pub(crate) fn seconds_above_zero(text: &str) -> Result<Duration, String> {
    let time = seconds(text).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| format!("must be a number of seconds above 0, at most {LONGEST}"))
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

    #[test]
    fn a_time_has_its_bounds() {
        assert_eq!(seconds_between("0.001", 0.001, 3600.0), Ok(Duration::from_millis(1)));
        for text in ["0", "3601", "-1", "x"] {
            let refused = Err("must be a number of seconds from 0.001 to 3600".to_owned());
            assert_eq!(seconds_between(text, 0.001, 3600.0), refused, "{text}");
        }
    }

    #[test]
    fn no_time_at_all_is_refused_where_something_is_to_happen_in_it() {
        assert_eq!(seconds("0"), Ok(Duration::ZERO));
        assert_eq!(seconds_above_zero("0.5"), Ok(Duration::from_millis(500)));
        // The last is less than a nanosecond.
        for text in ["0", "-1", "x", "1e-10"] {
            let refused = Err("must be a number of seconds above 0, at most 1000000".to_owned());
            assert_eq!(seconds_above_zero(text), refused, "{text}");
        }
    }
}
