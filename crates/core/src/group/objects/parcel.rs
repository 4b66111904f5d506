//! Whose turn it is to send an object to a rank: the two messages of one stay together, whoever else sends there.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The ranks that an object goes to now.
#[derive(Debug, Default)]
pub(crate) struct Parcels {
    busy: Mutex<BTreeSet<usize>>,
    freed: Condvar,
}

/// An object on its way, until this is dropped.
#[derive(Debug)]
pub(super) struct Parcel<'a> {
    parcels: &'a Parcels,
    to: usize,
}

impl Parcels {
    /// Keeps other threads from sending an object to this rank meanwhile; none where one of theirs goes there for so long.
    pub(super) fn begin(&self, to: usize, patience: Duration) -> Option<Parcel<'_>> {
        let waited = self.freed.wait_timeout_while(self.busy(), patience, |busy| busy.contains(&to));
        let mut busy = waited.unwrap_or_else(PoisonError::into_inner).0;
        // Not `then_some`: a parcel that is made is one that ends.
        busy.insert(to).then(|| Parcel { parcels: self, to })
    }

    fn busy(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Parcel<'_> {
    fn drop(&mut self) {
        self.parcels.busy().remove(&self.to);
        self.parcels.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_goes_to_a_rank_at_a_time() {
        let parcels = Parcels::default();
        let first = parcels.begin(1, Duration::MAX).expect("nothing goes there");
        assert!(parcels.begin(1, Duration::from_millis(1)).is_none());
        assert!(parcels.begin(2, Duration::ZERO).is_some(), "another rank");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| parcels.begin(1, Duration::MAX).is_some());
            drop(first);
            assert!(second.join().expect("no panic"));
        });
        assert!(parcels.begin(1, Duration::ZERO).is_some());
    }
}
