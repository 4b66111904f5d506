//! Ranks as people write them: "2, 5-7".

use std::fmt;

/// Some ranks in order, shown with runs drawn together.
///
/// ```
/// # use phalanx_core::Ranks;
/// assert_eq!(Ranks(&[2, 5, 6, 7]).to_string(), "2, 5-7");
/// assert_eq!(Ranks(&[2]).named(), "rank 2");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ranks<'a>(pub &'a [usize]);

impl Ranks<'_> {
    /// With the noun in its number: "rank 2", "ranks 2, 5-7".
    pub fn named(&self) -> String {
        format!("{} {self}", if self.0.len() == 1 { "rank" } else { "ranks" })
    }

    /// A word for each run of three and more, and for each rank that is in none.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> {
        self.0.chunk_by(|a, b| a + 1 == *b).flat_map(|run| match run {
            [first, .., last] if run.len() > 2 => vec![format!("{first}-{last}")],
            few => few.iter().map(usize::to_string).collect(),
        })
    }
}

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_three_and_more_are_drawn_together() {
        for (ranks, text) in [
            (&[][..], ""),
            (&[4], "4"),
            (&[4, 5], "4, 5"),
            (&[4, 5, 6], "4-6"),
            (&[0, 2, 3, 4, 7, 9, 10], "0, 2-4, 7, 9, 10"),
        ] {
            assert_eq!(Ranks(ranks).to_string(), text);
        }
        assert_eq!((Ranks(&[1]).named().as_str(), Ranks(&[1, 3]).named().as_str()), ("rank 1", "ranks 1, 3"));
    }
}
