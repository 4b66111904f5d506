//! Totals: what a group has done since it was made, by kind of operation, in fixed memory. Not which operations; those are in the ring.

use std::time::Duration;

use super::Record;
use crate::{ErrorKind, OpKind};

/// What a group has done on this rank since it was made, by kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    kinds: [Total; OpKind::ALL.len()],
}

/// All operations of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// How many were called.
    pub called: u64,
    /// How many of them have ended, well or not.
    pub ended: u64,
    /// Bytes that this rank gave to those that were called.
    pub input_bytes: u64,
    /// Bytes that it gets from them.
    pub output_bytes: u64,
    /// Nanoseconds that those that have ended waited for their turn on this rank.
    pub queued_ns: u64,
    /// Nanoseconds from their turn to their end: waiting for other ranks, moving bytes and joining them. Small ones that need not wait count as
    /// none: nobody looks at the clock before they are over.
    pub busy_ns: u64,
    failed: [u64; ErrorKind::ALL.len()],
    durations: [u64; Total::BUCKETS],
}

impl Totals {
    /// Those of one kind.
    pub fn of(&self, op: OpKind) -> &Total {
        &self.kinds[place(op)]
    }

    /// The kinds that were called at all, in wire order.
    pub fn used(&self) -> impl Iterator<Item = (OpKind, &Total)> {
        OpKind::ALL.into_iter().zip(&self.kinds).filter(|(_, total)| total.called > 0)
    }

    /// How many operations have not ended.
    pub fn pending(&self) -> u64 {
        self.kinds.iter().map(Total::pending).sum()
    }

    /// An operation was called.
    #[inline]
    pub(super) fn call(&mut self, record: &Record) {
        let (total, byte_len) = (&mut self.kinds[place(record.op)], record.dtype.byte_len() as u64);
        total.called += 1;
        total.input_bytes += record.input as u64 * byte_len;
        total.output_bytes += record.output as u64 * byte_len;
    }

    /// An operation that was called at `created`, and whose turn came at `started`, has ended.
    #[inline]
    pub(super) fn end(
        &mut self,
        op: OpKind,
        (created, started, ended): (Duration, Option<Duration>, Duration),
        error: Option<ErrorKind>,
    ) {
        let total = &mut self.kinds[place(op)];
        // As whole numbers, in which there is no carry from nanoseconds to seconds.
        let created = nanoseconds(created);
        let ended = nanoseconds(ended).max(created);
        let started = started.map_or(ended, nanoseconds).max(created).min(ended);
        total.ended += 1;
        total.queued_ns += started - created;
        total.busy_ns += ended - started;
        total.durations[bucket(ended - created)] += 1;
        if let Some(error) = error {
            total.failed[error as usize] += 1;
        }
    }
}

impl Total {
    /// How many classes of durations there are.
    pub const BUCKETS: usize = 27;

    /// How many have not ended.
    pub fn pending(&self) -> u64 {
        self.called - self.ended
    }

    /// How many have failed in an error of this kind.
    pub fn failed(&self, error: ErrorKind) -> u64 {
        self.failed[error as usize]
    }

    /// How many took from their call to their end as long as a class says, not counting shorter ones.
    pub fn durations(&self) -> &[u64; Total::BUCKETS] {
        &self.durations
    }

    /// The longest time in a class: 512 ns for the first, twice as long for each one after it, and no bound for the last.
    pub fn bound(bucket: usize) -> Option<Duration> {
        (bucket + 1 < Total::BUCKETS).then(|| Duration::from_nanos(1 << (FIRST + bucket)))
    }
}

fn place(op: OpKind) -> usize {
    op as usize - OpKind::AllReduce as usize
}

/// The class of a time: the exponent of the power of two that is not below it.
fn bucket(nanoseconds: u64) -> usize {
    let exponent = u64::BITS - nanoseconds.saturating_sub(1).leading_zeros();
    (exponent as usize).saturating_sub(FIRST).min(Total::BUCKETS - 1)
}

/// In 64 bits, which last for centuries of a group's clock.
fn nanoseconds(time: Duration) -> u64 {
    time.as_secs().wrapping_mul(1_000_000_000).wrapping_add(time.subsec_nanos().into())
}

/// The exponent of the first bound: a small operation within a host takes about as long.
const FIRST: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_and_error_has_a_place_of_its_own() {
        assert_eq!(OpKind::ALL.map(place), std::array::from_fn(|place| place));
        assert_eq!(ErrorKind::ALL.map(|error| error as usize), std::array::from_fn(|place| place));
    }

    #[test]
    fn a_time_is_in_the_class_whose_bound_it_does_not_exceed() {
        for (time, class) in [(0, 0), (1, 0), (512, 0), (513, 1), (1024, 1), (1025, 2), (1 << 34, 25)] {
            assert_eq!(bucket(time), class, "{time}");
            assert!(Total::bound(class).is_some_and(|bound| Duration::from_nanos(time) <= bound), "{time}");
        }
        assert_eq!([bucket((1 << 34) + 1), bucket(u64::MAX)], [26; 2]);
        assert_eq!(Total::bound(26), None);
    }

    #[test]
    fn an_end_says_how_long_it_was_queued_and_busy() {
        let mut totals = Totals::default();
        let at = Duration::from_micros;
        totals.kinds[place(OpKind::Barrier)].called = 4;
        totals.end(OpKind::Barrier, (at(10), Some(at(12)), at(15)), None);
        totals.end(OpKind::Barrier, (at(10), None, at(11)), Some(ErrorKind::Peer));
        // A clock that was read by another thread may seem to go back.
        totals.end(OpKind::Barrier, (at(10), Some(at(9)), at(8)), Some(ErrorKind::Peer));
        let total = totals.of(OpKind::Barrier);
        assert_eq!((total.ended, total.pending(), totals.pending()), (3, 1, 1));
        assert_eq!((total.queued_ns, total.busy_ns), (3000, 3000));
        assert_eq!((total.failed(ErrorKind::Peer), total.failed(ErrorKind::Timeout)), (2, 0));
        assert_eq!((total.durations()[0], total.durations()[1], total.durations()[4]), (1, 1, 1));
        assert_eq!(totals.used().map(|(op, _)| op).collect::<Vec<_>>(), [OpKind::Barrier]);
    }
}
