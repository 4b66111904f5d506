//! Why a meeting did not take place.

use std::time::Duration;

use phalanx_core::store::StoreError;
use phalanx_core::{Error, Ranks};

/// Why a meeting did not take place. Where ranks are at fault, all who came get the same error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeetError {
    /// Ranks did not come in time.
    #[error("{} of {size} did not come within {after:?}; rank {by} was the first to give up", Ranks(missing).named())]
    Missing {
        /// Those who had not come when somebody gave up, in order.
        missing: Vec<usize>,
        /// How many were to meet.
        size: usize,
        /// Who gave up first.
        by: usize,
        /// How long that rank was willing to wait.
        after: Duration,
    },
    /// Two came as the same rank.
    #[error("rank {rank} came twice: as {first} and as {second}")]
    Twice {
        /// The rank.
        rank: usize,
        /// Who came first, in the words of its card.
        first: String,
        /// Who came second.
        second: String,
    },
    /// Ranks do not agree how many are to meet.
    #[error("rank {rank} came to meet {size} ranks, rank {other} to meet {other_size}")]
    Sizes {
        /// A rank.
        rank: usize,
        /// How many it expects.
        size: usize,
        /// Another rank.
        other: usize,
        /// How many that one expects.
        other_size: usize,
    },
    /// This rank is none of those who meet.
    #[error("rank {rank} is not below the size {size}")]
    Rank {
        /// The rank.
        rank: usize,
        /// How many are to meet.
        size: usize,
    },
    /// This rank is at this meeting already, on another thread.
    #[error("this rank is there already, on another thread")]
    Busy,
    /// What stands in the store was written by nobody who knows this protocol.
    #[error("what stands under {key} makes no sense")]
    Garbled {
        /// The key, as this rank names it.
        key: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl MeetError {
    /// The same where those who met are these ranks of a world, in this order.
    #[must_use]
    pub fn among(self, ranks: &[usize]) -> MeetError {
        let of = |rank: usize| ranks.get(rank).copied().unwrap_or(rank);
        match self {
            MeetError::Missing { missing, size, by, after } => {
                let mut missing: Vec<usize> = missing.into_iter().map(of).collect();
                missing.sort_unstable();
                MeetError::Missing { missing, size, by: of(by), after }
            }
            MeetError::Twice { rank, first, second } => MeetError::Twice { rank: of(rank), first, second },
            MeetError::Sizes { rank, size, other, other_size } => {
                MeetError::Sizes { rank: of(rank), size, other: of(other), other_size }
            }
            other => other,
        }
    }

    /// As the stack's error, where `what` is what the meeting was for: `joining the world`.
    pub fn during(self, what: &str) -> Error {
        match self {
            MeetError::Missing { ref missing, .. } => Error::absent(what, &self, missing.clone()),
            other => Error::setup(what, other),
        }
    }
}
