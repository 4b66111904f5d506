//! Numbers as the verdict writes them.

use std::time::Duration;

use phalanx::Ranks;

/// Ranks in short: `2, 5-7`.
pub(super) fn ranks(numbers: &[usize]) -> String {
    Ranks(&in_order(numbers)).to_string()
}

/// The same with what they are: `rank 2`, `ranks 5-7`.
pub(crate) fn named(numbers: &[usize]) -> String {
    Ranks(&in_order(numbers)).named()
}

fn in_order(numbers: &[usize]) -> Vec<usize> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}

/// Seconds to the millisecond: `1.204 s`.
pub(super) fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_ranks_are_shortened() {
        assert_eq!(ranks(&[7, 2, 5, 6, 5]), "2, 5-7");
        assert_eq!(ranks(&[0, 1]), "0, 1");
        assert_eq!(ranks(&[]), "");
        assert_eq!([named(&[7]), named(&[0, 1])], ["rank 7", "ranks 0, 1"]);
    }

    #[test]
    fn times_are_in_seconds() {
        assert_eq!(seconds(Duration::from_millis(1204)), "1.204 s");
    }
}
