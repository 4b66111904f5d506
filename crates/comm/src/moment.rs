//! Moments to come, of which the furthest is a year away: no clock can count to `Duration::MAX`.

use std::time::{Duration, Instant};

/// The moment after such a span.
pub(crate) fn after(span: Duration) -> Instant {
    later(Instant::now(), span)
}

/// The moment such a span later than `now`.
pub(crate) fn later(now: Instant, span: Duration) -> Instant {
    now + span.min(YEAR)
}

/// How long it is until then; zero when it has passed.
pub(crate) fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_span_is_a_year() {
        assert!(left(after(Duration::MAX)) <= YEAR);
        assert!(left(after(Duration::ZERO)).is_zero());
    }
}
