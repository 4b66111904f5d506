//! How many there are of something, in words: one is one.

/// A number with its noun.
pub(crate) fn counted(count: impl TryInto<u64> + Copy + std::fmt::Display, one: &str) -> String {
    format!("{count} {}", noun(count, one))
}

/// The noun alone, which stands elsewhere than its number.
pub(crate) fn noun(count: impl TryInto<u64>, one: &str) -> String {
    if count.try_into().is_ok_and(|count| count == 1) { one.to_owned() } else { format!("{one}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one() {
        assert_eq!([0_usize, 1, 2].map(|count| counted(count, "rank")), ["0 ranks", "1 rank", "2 ranks"]);
    }
}
