//! Where ranks compare each operation before it begins, if they do: on the store, one meeting a number.

use phalanx_core::store::{Store, StoreError};
use phalanx_core::{Error, Fingerprint, Result};

use super::hall::{Hall, lock};
use super::job::Job;
use crate::api::{Cuda, Nccl, Process};

impl<N: Nccl, C: Cuda, P: Process> Hall<N, C, P> {
    /// Compares all collectives of an operation with those of all ranks before it begins.
    pub(super) fn meet(&self, job: &Job<C>) -> Result<()> {
        job.prints.iter().try_for_each(|print| self.meet_over(print, job))
    }

    fn meet_over(&self, ours: &Fingerprint, job: &Job<C>) -> Result<()> {
        let store = self.store.with_timeout(job.flight.deadline.saturating_sub(self.now()));
        let lost = |error| match error {
            StoreError::Timeout { .. } => self.late(&job.flight),
            error => Error::setup("the meeting of ranks", error),
        };
        let rank = self.layout.rank();
        store.set(&key(ours.sequence, rank), ours.encode()).map_err(lost)?;
        for peer in (0..self.layout.size()).filter(|&peer| peer != rank) {
            let bytes = store.get(&key(ours.sequence, peer)).map_err(lost)?;
            let theirs = bytes.try_into().ok().and_then(|bytes| Fingerprint::decode(&bytes).ok());
            if let Some(error) = theirs.and_then(|theirs| self.differs(ours, peer, &theirs, false)) {
                return Err(error);
            }
        }
        self.clear_up_before(ours.sequence, &store);
        Ok(())
    }

    /// Takes back what this rank said at the meeting before this one, which all have left once they have come to this.
    fn clear_up_before(&self, sequence: u32, store: &Store) {
        let before = lock(&self.met).replace(sequence);
        if let Some(before) = before
            && let Err(error) = store.delete(&key(before, self.layout.rank()))
        {
            log::debug!("a meeting's key stays: {error}");
        }
    }
}

fn key(sequence: u32, rank: usize) -> String {
    format!("phalanx/meeting/{sequence}/{rank}")
}
