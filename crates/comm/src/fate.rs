//! The fate of a group: the first failure, known to all its ranks, and the bells that tell them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use phalanx_core::{Error, Result};

use crate::bell::Bell;
use crate::roll::Roll;

/// What became of a group. The first failure wins, and every rank reports it.
#[derive(Debug)]
pub(crate) struct Fate {
    failed: AtomicBool,
    first: Mutex<Option<Error>>,
    bells: Vec<Arc<Bell>>,
    /// What each rank has begun.
    pub(crate) roll: Roll,
}

impl Fate {
    /// The fate shared by the ranks with these bells.
    pub(crate) fn new(bells: Vec<Arc<Bell>>) -> Fate {
        Fate { failed: AtomicBool::new(false), first: Mutex::new(None), roll: Roll::new(bells.len()), bells }
    }

    /// Seals the group's fate unless it is sealed already, and returns what the caller reports: the failure itself when
    /// it is the first, otherwise that the group was aborted and by what.
    pub(crate) fn seal(&self, error: Error) -> Error {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = &*first {
            return Error::aborted_by(first.clone());
        }
        *first = Some(error.clone());
        drop(first);
        self.failed.store(true, Ordering::Release);
        self.bells.iter().for_each(|bell| bell.ring());
        error
    }

    /// That the group still stands.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.clone().map_or(Ok(()), |first| Err(Error::aborted_by(first)))
    }
}
