//! Why a pickle is not read.

use std::fmt;

/// Why a pickle is not read: what stands where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It asks for more than plain data.
    #[error("byte {offset}: opcode {name} asks for more than plain data, and is refused")]
    Refused {
        /// The opcode's name.
        name: &'static str,
        /// Where it stands.
        offset: usize,
    },
    /// It has a byte that is no opcode.
    #[error("byte {offset}: {byte:#04x} is no opcode")]
    Unknown {
        /// The byte.
        byte: u8,
        /// Where it stands.
        offset: usize,
    },
    /// It ends too early.
    #[error("byte {offset}: the pickle ends here, before it is whole")]
    Truncated {
        /// Where it ends.
        offset: usize,
    },
    /// Something in it cannot be.
    #[error("byte {offset}: {what}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// Where.
        offset: usize,
    },
    /// It is beyond a limit.
    #[error("byte {offset}: more than {most} {limit}")]
    Beyond {
        /// Which limit.
        limit: Limit,
        /// How many are allowed.
        most: usize,
        /// Where it was reached.
        offset: usize,
    },
}

/// What is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Bytes of the pickle.
    Bytes,
    /// Values in all.
    Values,
    /// Values in values.
    Depth,
    /// Values that are remembered to be used again.
    Memo,
    /// Values looked at, those that are used more than once included.
    Looks,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Bytes => "bytes",
            Limit::Values => "values",
            Limit::Depth => "levels of lists in lists",
            Limit::Memo => "values to be used again",
            Limit::Looks => "values to look at",
        })
    }
}
