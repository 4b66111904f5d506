//! Why a dump cannot be read. Each message is one line that names what was wrong and where.

use std::io;
use std::path::PathBuf;

use crate::pickle;

/// Why bytes are no dump.
#[derive(Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// They are no pickle, or not one that is safe to read.
    #[error(transparent)]
    Pickle(#[from] pickle::Error),
    /// They are no JSON, or not that of a dump.
    #[error("line {line}, column {column}: {why}")]
    Json {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What was wrong.
        why: String,
    },
    /// They are of a format that this version does not know.
    #[error("format is {found}, must be {known} or less")]
    Format {
        /// What they say.
        found: u64,
        /// The newest that is known.
        known: u32,
    },
    /// A value is not of its kind, or cannot be.
    #[error("{what} is {value}, must be {expected}")]
    Value {
        /// The value's name.
        what: String,
        /// The value.
        value: String,
        /// What would have been accepted.
        expected: &'static str,
    },
    /// A text is longer than any of its kind.
    #[error("{what} is {byte_len} bytes long, must be {limit} or less")]
    TooLong {
        /// The text's name.
        what: String,
        /// Its length.
        byte_len: usize,
        /// The longest that is kept.
        limit: usize,
    },
    /// They are few, and become too much: what stands there once is used too often.
    #[error("with {what} the dump takes more than {limit} bytes, the most for a pickle of its length")]
    TooMuch {
        /// What is one too many.
        what: String,
        /// How much is kept.
        limit: usize,
    },
    /// They begin like neither format.
    #[error("begins with byte {0:#04x}: neither a pickle (0x80) nor JSON ('{{')")]
    Unknown(u8),
    /// There are none.
    #[error("is empty")]
    Empty,
}

/// Why dumps cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system said no.
    #[error("{}: {cause}", path.display())]
    Io {
        /// What was read or written.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// There is no dump in a directory.
    #[error("{}: no dumps; they are files whose names end in the rank, as in trace_0 or trace_0.json", .0.display())]
    NoDumps(PathBuf),
    /// A file is no dump.
    #[error("{}: {broken}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Why.
        broken: Broken,
    },
    /// A file is longer than any dump.
    #[error("{}: is {byte_len} bytes long, must be {limit} or less", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        byte_len: u64,
        /// The longest that is read.
        limit: u64,
    },
    /// There are more files than any job has ranks.
    #[error("{}: has {count} dumps, must be {limit} or less", path.display())]
    TooMany {
        /// The directory.
        path: PathBuf,
        /// How many there are.
        count: usize,
        /// The most that are read.
        limit: usize,
    },
    /// Two files are of one rank.
    #[error("{} and {} are both of rank {rank}: one directory holds the dumps of one moment", first.display(), second.display())]
    Twice {
        /// The rank.
        rank: usize,
        /// One file.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// Two files are of different jobs.
    #[error("{} is of a world of {ours}, {} of one of {theirs}: one directory holds the dumps of one job", first.display(), second.display())]
    Mixed {
        /// One file.
        first: PathBuf,
        /// Its world's size.
        ours: usize,
        /// The other.
        second: PathBuf,
        /// Its world's size.
        theirs: usize,
    },
}

impl Broken {
    /// A value that cannot be. A long one is told by its beginning.
    pub(crate) fn value(what: impl Into<String>, value: impl ToString, expected: &'static str) -> Broken {
        let mut value = value.to_string();
        if let Some((end, _)) = value.char_indices().nth(MOST_TOLD) {
            value.replace_range(end.., "...");
        }
        Broken::Value { what: what.into(), value, expected }
    }
}

/// How many letters of a value are told.
const MOST_TOLD: usize = 200;
