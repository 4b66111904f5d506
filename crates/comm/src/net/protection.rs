//! How the bytes between two ranks are protected once both have proven the job key.

/// What a job key does for the connections between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protection {
    /// Both ends prove the key when they connect, so that no stranger takes part. What follows travels as it is: whoever
    /// can read or change packets on the way can read or change it.
    Handshake,
    /// The same, and every byte that follows is encrypted and cannot be changed, dropped or repeated unseen.
    #[default]
    Encrypted,
}
