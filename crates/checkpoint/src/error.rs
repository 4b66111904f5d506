//! What can go wrong with a checkpoint; each error names the file.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Why a checkpoint could not be saved or loaded.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The disk refused.
    #[error("{}: {source}", file.display())]
    Disk {
        /// What was to be read or written.
        file: PathBuf,
        /// Why it was not.
        source: io::Error,
    },
    /// A file is not what was written.
    #[error("{}: {why}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// An index is of another format than this version reads.
    #[error("{}: format {found}, must be {must}", file.display())]
    Format {
        /// The index.
        file: PathBuf,
        /// Its format.
        found: u32,
        /// What this version reads.
        must: u32,
    },
    /// There is no such tensor in the checkpoint, or another than was asked for; or what is to be saved of it does not fit it.
    #[error("{}: tensor {name}: {why}", file.display())]
    Tensor {
        /// Where it was looked for, or was to be saved.
        file: PathBuf,
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// Another rank could not save its part.
    #[error("rank {rank} could not save: {why}")]
    Elsewhere {
        /// The rank, by its number in the world.
        rank: usize,
        /// What it says.
        why: String,
    },
    /// A rank saves another step than the first, or says something else of the progress.
    #[error("rank {rank} saves something else than the first rank: {why}")]
    Apart {
        /// The rank, by its number in the world.
        rank: usize,
        /// What it saves, and what the first does.
        why: String,
    },
    /// A later step than the one that is to be saved has a checkpoint already, which would stay the newest.
    #[error("{}: later than step {step}, which is to be saved: remove it, or save elsewhere", file.display())]
    Later {
        /// The later checkpoint's directory.
        file: PathBuf,
        /// The step that is to be saved.
        step: u64,
    },
    /// The rank that looks for a checkpoint for all could not find one.
    #[error("rank {rank} found no checkpoint: {why}")]
    Unfound {
        /// The rank, by its number in the world.
        rank: usize,
        /// What it says.
        why: String,
    },
    /// The ranks could not agree that all had saved, or on what to load.
    #[error("{0}")]
    Ranks(#[from] phalanx_core::Error),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// As `main` and `unwrap` show it.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Error {
    /// Whether it says that a file is not what was written, or is not there: what any rank would find at any time.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Error::Damaged { .. } => true,
            Error::Disk { source, .. } => matches!(source.kind(), ErrorKind::NotFound | ErrorKind::InvalidData),
            _ => false,
        }
    }

    pub(crate) fn disk(file: &Path) -> impl FnOnce(io::Error) -> Error {
        let file = file.to_owned();
        |source| Error::Disk { file, source }
    }

    pub(crate) fn damaged(file: &Path, why: impl Into<String>) -> Error {
        Error::Damaged { file: file.to_owned(), why: why.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_with_it_says_it_in_words() {
        let error = Error::damaged(Path::new("/saved/index.json"), "it ends early");
        assert_eq!(format!("{error:?}"), "/saved/index.json: it ends early");
    }
}
