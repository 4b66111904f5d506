//! Numbers as the verdict writes them.

use std::time::Duration;

/// Ranks in short: `2, 5-7`.
pub(super) fn ranks(ranks: &[usize]) -> String {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs = sorted.chunk_by(|a, b| a + 1 == *b);
    let show = |run: &[usize]| match run {
        [rank] => rank.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    };
    runs.map(show).collect::<Vec<_>>().join(", ")
}

/// The same with what they are: `rank 2`, `ranks 5-7`.
pub(crate) fn named(numbers: &[usize]) -> String {
    match numbers {
        [rank] => format!("rank {rank}"),
        _ => format!("ranks {}", ranks(numbers)),
    }
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
        assert_eq!(ranks(&[0, 1]), "0-1");
        assert_eq!(ranks(&[]), "");
        assert_eq!([named(&[7]), named(&[0, 1])], ["rank 7", "ranks 0-1"]);
    }

    #[test]
    fn times_are_in_seconds() {
        assert_eq!(seconds(Duration::from_millis(1204)), "1.204 s");
    }
}
