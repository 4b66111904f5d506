//! Why a store did not answer as asked, and what is known about whether it was done.

use std::fmt;
use std::time::Duration;

use super::{Key, Verb};
use crate::Error;

/// Why a call to a store did not give its result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The deadline passed.
    #[error("store {verb}: no answer within {after:?} from {detail}{}{doubt}", list_keys(keys))]
    Timeout {
        /// What was asked.
        verb: Verb,
        /// How long it was given.
        after: Duration,
        /// The keys asked about, or those of them that are known to be absent.
        keys: Vec<Key>,
        /// Which store, and what was seen of it where that explains it.
        detail: String,
        /// Whether it may have been done.
        doubt: Doubt,
    },
    /// The store does not do this; nothing was changed.
    #[error("store {verb}: {refusal}")]
    Refused {
        /// What was asked.
        verb: Verb,
        /// Why not.
        refusal: Refusal,
    },
    /// The way to the store broke, and could not be mended within the deadline.
    #[error("store {verb}: {detail}{doubt}")]
    Lost {
        /// What was asked.
        verb: Verb,
        /// Which store, and what was seen.
        detail: String,
        /// Whether it may have been done.
        doubt: Doubt,
    },
    /// The store does not let this process in, or is not the one it should be.
    #[error("store {verb}: {detail}")]
    Denied {
        /// What was asked.
        verb: Verb,
        /// Which store, and what is known of the reason.
        detail: String,
    },
}

/// Whether a request that got no answer may have been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It was not, or asking again does no harm.
    None,
    /// Nobody can tell: it changes the store, and was on its way.
    Unknown,
}

/// Why a store does not do what it is asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A key is longer than keys may be.
    #[error("a key of {len} bytes, where at most {limit} are allowed: \"{start}...\"")]
    KeyTooLong {
        /// Its length in bytes.
        len: u64,
        /// The limit in bytes.
        limit: u64,
        /// How it begins.
        start: String,
    },
    /// A value is, or would become, longer than values may be.
    #[error("a value of {len} bytes for {key}, where at most {limit} are allowed")]
    ValueTooLong {
        /// Its length in bytes.
        len: u64,
        /// The limit in bytes.
        limit: u64,
        /// The key it is for.
        key: Key,
    },
    /// More keys in one request than allowed.
    #[error("{count} keys in one request, where at most {limit} are allowed")]
    TooManyKeys {
        /// How many.
        count: u64,
        /// The limit.
        limit: u64,
    },
    /// The request, or its answer, is longer than messages may be.
    #[error("a message of {len} bytes, where at most {limit} are allowed: ask for fewer keys at once")]
    MessageTooLong {
        /// Its length in bytes.
        len: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// This client would hold more memory of the store than one client may.
    #[error("this client would hold {len} bytes of the store, where one may hold {limit}")]
    ClientFull {
        /// What it would hold, in bytes.
        len: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The store would hold more memory than it may.
    #[error("the store would hold {len} bytes, where it may hold {limit}")]
    StoreFull {
        /// What it would hold, in bytes.
        len: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A counter was asked of a value that is no decimal number.
    #[error("{key} holds no number to add to: \"{start}\"")]
    NotANumber {
        /// The key.
        key: Key,
        /// How its value begins.
        start: String,
    },
    /// A counter would leave the range of 64 bits.
    #[error("{key} is {value}, to which {delta} cannot be added in 64 bits")]
    Overflow {
        /// The key.
        key: Key,
        /// The counter.
        value: i64,
        /// What was to be added.
        delta: i64,
    },
    /// A number in the request makes no sense.
    #[error("{argument} is {value}, {expected}")]
    Argument {
        /// The argument's name.
        argument: String,
        /// Its value.
        value: String,
        /// What would have been accepted: "must be ...".
        expected: String,
    },
    /// This store has no such operation.
    #[error("{store} cannot do it")]
    Unsupported {
        /// Which store.
        store: String,
    },
    /// The store is being closed.
    #[error("the store is closed")]
    Closed,
    /// A reason that only a newer server knows, in its words.
    #[error("{text}")]
    Other {
        /// What it said.
        text: String,
    },
}

impl StoreError {
    /// Whether the deadline passed.
    pub fn is_timeout(&self) -> bool {
        matches!(self, StoreError::Timeout { .. })
    }

    /// Whether the request may have been carried out although no answer came.
    pub fn doubt(&self) -> Doubt {
        match self {
            StoreError::Timeout { doubt, .. } | StoreError::Lost { doubt, .. } => *doubt,
            StoreError::Refused { .. } | StoreError::Denied { .. } => Doubt::None,
        }
    }
}

/// To whoever needs the store for something else, its failure is the environment's.
impl From<StoreError> for Error {
    fn from(error: StoreError) -> Error {
        let text = error.to_string();
        let (what, why) = text.split_once(": ").unwrap_or(("store", &text));
        Error::setup(what, why)
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::None => Ok(()),
            Doubt::Unknown => f.write_str("; it may have been done or not"),
        }
    }
}

/// A few keys by name, more by number.
fn list_keys(keys: &[Key]) -> String {
    let named: Vec<String> = keys.iter().take(NAMED).map(Key::to_string).collect();
    match (named.is_empty(), keys.len().saturating_sub(NAMED)) {
        (true, _) => String::new(),
        (false, 0) => format!("; asked for {}", named.join(", ")),
        (false, more) => format!("; asked for {} and {more} more", named.join(", ")),
    }
}

const NAMED: usize = 4;
