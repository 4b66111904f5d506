//! What can go wrong: in a tensor, among ranks, or in what was asked for.

use std::fmt;

/// Why a call failed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// candle refused or failed.
    #[error("{0}")]
    Tensor(#[from] candle_core::Error),
    /// The ranks did: what it means for the others stands in there.
    #[error("{0}")]
    Ranks(#[from] phalanx_core::Error),
    /// The call asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// As `main` and `unwrap` show it.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn main_shows_an_error_in_its_own_words() {
        let shown = |error: Error| assert_eq!(format!("{error:?}"), error.to_string());
        assert_eq!(format!("{:?}", Error::Usage("Model::new: no units".to_owned())), "Model::new: no units");
        shown(candle_core::Error::Msg("a shape that does not fit".to_owned()).into());
        shown(phalanx_core::Error::aborted("at the wish of a rank").into());
    }
}
