//! What can be wrong with bytes that should be a message.

/// Bytes that are no message of the dialect, or one that is longer than allowed. The connection cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// No message has this number.
    #[error("no message has number {0}")]
    Kind(u8),
    /// A length or count is larger than allowed.
    #[error("{what} of {len}, where at most {limit} is allowed")]
    Length {
        /// What is too long.
        what: &'static str,
        /// Its length.
        len: u64,
        /// The limit.
        limit: u64,
    },
    /// A length or count is below zero.
    #[error("{what} of {value}")]
    Negative {
        /// What is negative.
        what: &'static str,
        /// Its value.
        value: i64,
    },
    /// A message ends before its last field does.
    #[error("the message ends within {0}")]
    Short(&'static str),
    /// A message goes on after its last field.
    #[error("{0} bytes after the message's last field")]
    Trailing(usize),
    /// A byte has a value that means nothing there.
    #[error("{what} is {value}")]
    Value {
        /// The field.
        what: &'static str,
        /// Its value.
        value: u32,
    },
    /// A text is not UTF-8.
    #[error("a text that is not UTF-8")]
    Text,
}
