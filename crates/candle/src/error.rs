//! What can go wrong: in a tensor, among ranks, or in what was asked for.

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
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
