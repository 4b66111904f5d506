//! How the bytes between two ranks are protected once both have proven the job key.

use crate::secure::Cover;

/// What a job key does for the connections between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Protection {
    /// Both ends prove the key when they connect, so that no stranger takes part. What follows travels as it is: whoever
    /// can read or change packets on the way can read or change it.
    Handshake = 1,
    /// The same, and every byte that follows is encrypted and cannot be changed, dropped or repeated unseen.
    #[default]
    Encrypted = 2,
    /// The same, but the data of collectives and messages can be read on the way. It costs less.
    Authenticated = 3,
}

impl Protection {
    /// How the records of data are covered, where there are any.
    pub(super) fn cover(self) -> Option<Cover> {
        match self {
            Protection::Handshake => None,
            Protection::Encrypted => Some(Cover::Encrypted),
            Protection::Authenticated => Some(Cover::Authenticated),
        }
    }
}
