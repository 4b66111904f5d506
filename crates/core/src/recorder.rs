//! The flight recorder: the last operations of a group as plain data, in fixed memory, for whoever has to find out later.

use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::op::OpKind;
use crate::reduce::ReduceOp;
use crate::{DType, ErrorKind, Op};

/// The last operations of one group.
#[derive(Debug)]
pub struct Recorder {
    ring: Mutex<Ring>,
}

/// One operation as it is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Counts every operation of the group, messages included.
    pub number: u64,
    /// The number among the collectives, the same on every rank, or among this rank's messages.
    pub sequence: u32,
    /// What is done.
    pub op: OpKind,
    /// The type of the elements.
    pub dtype: DType,
    /// How elements are joined, if they are.
    pub reduce: Option<ReduceOp>,
    /// The root, or the peer of a message.
    pub peer: Option<usize>,
    /// Elements that this rank gives.
    pub input: usize,
    /// Elements that this rank gets.
    pub output: usize,
    /// Where in the program it was called.
    pub site: &'static Location<'static>,
    /// When it was called.
    pub created: Duration,
    /// When its turn came.
    pub started: Option<Duration>,
    /// When it ended.
    pub ended: Option<Duration>,
    /// How it stands.
    pub state: State,
}

/// How an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits for its turn.
    Queued,
    /// It is being played.
    Started,
    /// It ended well.
    Done,
    /// It ended in an error.
    Failed(ErrorKind),
}

/// An operation's entry in its recorder.
#[derive(Clone, Debug)]
pub struct Flight {
    recorder: Arc<Recorder>,
    number: u64,
}

impl Recorder {
    /// Remembers the last `capacity` operations.
    pub fn new(capacity: usize) -> Recorder {
        Recorder { ring: Mutex::new(Ring { records: Vec::with_capacity(capacity), capacity, created: 0 }) }
    }

    /// What is remembered, the oldest first.
    pub fn records(&self) -> Vec<Record> {
        let ring = self.ring();
        let mut records = ring.records.clone();
        records.sort_unstable_by_key(|record| record.number);
        records
    }

    /// Writes an operation down.
    pub(crate) fn create(self: &Arc<Recorder>, record: impl FnOnce(u64) -> Record) -> Flight {
        let mut ring = self.ring();
        let number = ring.created;
        ring.created += 1;
        let (at, is_full) = (ring.place(number), ring.records.len() == ring.capacity);
        match ring.records.get_mut(at) {
            Some(oldest) => *oldest = record(number),
            None if is_full => {}
            None => ring.records.push(record(number)),
        }
        Flight { recorder: Arc::clone(self), number }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Flight {
    /// The operation's turn has come. Only the first time that this is said counts.
    pub fn start(&self, now: Duration) {
        self.update(|record| {
            record.started.get_or_insert(now);
            record.state = State::Started;
        });
    }

    /// The operation has ended. One that ended well and was never said to start did so when it was called.
    pub fn end(&self, now: Duration, error: Option<ErrorKind>) {
        let state = error.map_or(State::Done, State::Failed);
        self.update(|record| {
            if error.is_none() {
                record.started.get_or_insert(record.created);
            }
            (record.ended, record.state) = (Some(now), state);
        });
    }

    /// Where this rank called the collective with this number, if it is remembered.
    pub fn site_of(&self, sequence: u32) -> Option<&'static Location<'static>> {
        let ring = self.recorder.ring();
        let is_it = |record: &&Record| record.sequence == sequence && !matches!(record.op, OpKind::Send | OpKind::Recv);
        ring.records.iter().filter(is_it).max_by_key(|record| record.number).map(|record| record.site)
    }

    /// Changes the entry, unless newer ones have taken its place.
    fn update(&self, change: impl FnOnce(&mut Record)) {
        let mut ring = self.recorder.ring();
        let at = ring.place(self.number);
        if let Some(record) = ring.records.get_mut(at).filter(|record| record.number == self.number) {
            change(record);
        }
    }
}

impl Record {
    /// The entry of an operation that was just called on `rank` of `size`.
    pub(crate) fn of(op: &Op, dtype: DType, rank: usize, size: usize, site: &'static Location<'static>) -> Record {
        let need = op.need(rank, size);
        let peer = match op {
            Op::Send { to, .. } => Some(*to),
            Op::Recv { from, .. } => *from,
            _ => op.root(),
        };
        Record {
            number: 0,
            sequence: 0,
            op: op.kind(),
            dtype,
            reduce: op.reduce(),
            peer,
            input: need.input,
            output: need.output,
            site,
            created: Duration::ZERO,
            started: None,
            ended: None,
            state: State::Queued,
        }
    }
}

#[derive(Debug)]
struct Ring {
    records: Vec<Record>,
    capacity: usize,
    created: u64,
}

impl Ring {
    fn place(&self, number: u64) -> usize {
        (number % self.capacity.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> Record {
        Record { number, ..Record::of(&Op::Barrier, DType::U8, 0, 1, Location::caller()) }
    }

    #[test]
    fn the_oldest_entries_make_room() {
        let recorder = Arc::new(Recorder::new(3));
        let flights: Vec<Flight> = (0..5).map(|_| recorder.create(record)).collect();
        flights[0].end(Duration::from_secs(9), None);
        flights[3].start(Duration::from_secs(1));
        flights[4].end(Duration::from_secs(2), Some(ErrorKind::Peer));
        let records = recorder.records();
        assert_eq!(records.iter().map(|record| record.number).collect::<Vec<_>>(), [2, 3, 4]);
        let states = records.iter().map(|record| record.state).collect::<Vec<_>>();
        assert_eq!(states, [State::Queued, State::Started, State::Failed(ErrorKind::Peer)]);
    }

    #[test]
    fn a_recorder_without_room_remembers_nothing() {
        let recorder = Arc::new(Recorder::new(0));
        recorder.create(record).start(Duration::ZERO);
        assert!(recorder.records().is_empty());
    }
}
