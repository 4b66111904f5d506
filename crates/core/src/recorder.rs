//! The flight recorder: the last operations of a group as plain data, in fixed memory, for whoever has to find out later.

mod glance;
mod totals;

pub use glance::Glance;
pub use totals::{Total, Totals};

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::op::{Need, OpKind};
use crate::reduce::ReduceOp;
use crate::{DType, Desync, ErrorKind, Op, Site};

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
    /// What tells a message from others between the same two ranks.
    pub tag: Option<u32>,
    /// Elements that this rank gives.
    pub input: usize,
    /// Elements that this rank gets.
    pub output: usize,
    /// Whether every rank gives, or gets, as many elements as the others.
    pub even: bool,
    /// Where in the program it was called.
    pub site: Site,
    /// When it was called; of a small one that did not have to wait for its turn or for others, when it ended.
    pub created: Duration,
    /// How long it may take, from then on.
    pub timeout: Duration,
    /// When its turn came.
    pub started: Option<Duration>,
    /// When it ended.
    pub ended: Option<Duration>,
    /// How it stands.
    pub state: State,
    /// Whether it was begun ahead, and nobody waits for it yet.
    pub is_ahead: bool,
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

/// An operation's entry in its recorder. It is written once the operation has to wait for others or is over: until then nobody
/// could learn anything from it, and while it waits the writing costs nothing.
#[derive(Clone, Debug)]
pub struct Flight {
    /// None of an operation that is not recorded.
    recorder: Option<Arc<Recorder>>,
    /// Where it is written, once it is.
    entry: Cell<Option<Entry>>,
}

/// Where an operation is written down.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    op: OpKind,
    created: Duration,
}

impl Recorder {
    /// Remembers the last `capacity` operations.
    pub fn new(capacity: usize) -> Recorder {
        Recorder {
            ring: Mutex::new(Ring {
                records: Vec::with_capacity(capacity.min(AT_FIRST)),
                capacity,
                created: 0,
                next: 0,
                totals: Totals::default(),
            }),
        }
    }

    /// What is remembered, the oldest first. Operations wait for as long as it is copied: some tens of microseconds at most.
    pub fn records(&self) -> Vec<Record> {
        let mut records = self.ring().records.clone();
        records.sort_unstable_by_key(|record| record.number);
        records
    }

    /// Where this rank called the collective with this number, if it is remembered.
    pub(crate) fn site_of(&self, sequence: u32) -> Option<Site> {
        let is_it = |record: &&Record| record.sequence == sequence && !record.op.is_message();
        self.ring().records.iter().filter(is_it).max_by_key(|record| record.number).map(|record| record.site)
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Flight {
    /// An operation that is not written down yet.
    pub(crate) fn new(recorder: &Arc<Recorder>) -> Flight {
        Flight { recorder: Some(Arc::clone(recorder)), entry: Cell::new(None) }
    }

    /// That of an operation that is not recorded.
    pub(crate) fn unrecorded() -> Flight {
        Flight { recorder: None, entry: Cell::new(None) }
    }

    /// Whether the operation is recorded.
    pub fn is_recorded(&self) -> bool {
        self.recorder.is_some()
    }

    /// When the operation was called, once it is written down.
    pub fn created(&self) -> Option<Duration> {
        self.entry.get().map(|entry| entry.created)
    }

    /// Writes the operation down under the number that it gets, unless it is written down already.
    pub(crate) fn open(&self, record: impl FnOnce(u64) -> Record) {
        if let Some(mut ring) = self.ring().filter(|_| self.entry.get().is_none()) {
            self.entry.set(Some(ring.write(record)));
        }
    }

    /// The operation's turn came when it was called: so it is written down, or that is added where it is already.
    pub(crate) fn open_started(&self, record: impl FnOnce(u64) -> Record) {
        match self.created() {
            Some(created) => self.start(created),
            None => self.open(|number| {
                let mut record = record(number);
                (record.started, record.state) = (Some(record.created), State::Started);
                record
            }),
        }
    }

    /// The operation's turn has come. Only the first time that this is said counts.
    pub(crate) fn start(&self, now: Duration) {
        self.update(|record| {
            record.started.get_or_insert(now);
            record.state = State::Started;
        });
    }

    /// The operation has ended. One that ended well and was never said to start did so when it was called.
    #[inline]
    pub(crate) fn end(&self, now: Duration, error: Option<ErrorKind>, record: impl FnOnce(u64) -> Record) {
        let Some(mut ring) = self.ring() else { return };
        let entry = self.entry.get().unwrap_or_else(|| ring.write(record));
        self.entry.set(Some(entry));
        let Entry { number, op, created } = entry;
        // Newer operations may have taken the place of the entry; it counts all the same.
        let mut started = error.is_none().then_some(created);
        if let Some(record) = ring.entry(number) {
            started = record.started.or(started);
            let state = error.map_or(State::Done, State::Failed);
            (record.started, record.ended, record.state) = (started, Some(now), state);
        }
        ring.totals.end(op, (created, started, now), error);
    }

    /// Says whether nobody waits for it.
    pub(crate) fn set_ahead(&self, is_ahead: bool) {
        self.update(|record| record.is_ahead = is_ahead);
    }

    /// The number of the entry, once it is written.
    pub(crate) fn number(&self) -> Option<u64> {
        self.entry.get().map(|entry| entry.number)
    }

    /// The operation as it stands, if it is written down and still remembered.
    pub fn record(&self) -> Option<Record> {
        let number = self.number()?;
        self.ring()?.entry(number).copied()
    }

    /// Where this rank called the collective with this number, if it is remembered.
    pub fn site_of(&self, sequence: u32) -> Option<Site> {
        self.recorder.as_ref()?.site_of(sequence)
    }

    /// Where this rank called what ranks disagree about, as this operation was told: two of them about a message, or all about a collective.
    pub(crate) fn site_in(&self, desync: &Desync) -> Option<Site> {
        match self.entry.get() {
            Some(entry) if entry.op.is_message() && !desync.moved => self.record().map(|record| record.site),
            _ => self.site_of(desync.sequence),
        }
    }

    /// Changes the entry, unless newer ones have taken its place.
    fn update(&self, change: impl FnOnce(&mut Record)) {
        let Some(number) = self.number() else { return };
        if let Some(record) = self.ring().as_mut().and_then(|ring| ring.entry(number)) {
            change(record);
        }
    }

    fn ring(&self) -> Option<MutexGuard<'_, Ring>> {
        self.recorder.as_ref().map(|recorder| recorder.ring())
    }
}

impl Record {
    /// The entry of an operation that was just called.
    #[inline]
    pub(crate) fn of(op: &Op, need: Need, dtype: DType, site: Site) -> Record {
        let (peer, tag) = match op {
            Op::Send { to, tag, .. } => (Some(*to), Some(*tag)),
            Op::Recv { from, tag, .. } => (*from, Some(*tag)),
            _ => (op.root(), None),
        };
        Record {
            number: 0,
            sequence: 0,
            op: op.kind(),
            dtype,
            reduce: op.reduce(),
            peer,
            tag,
            input: need.input,
            output: need.output,
            even: op.is_even(),
            site,
            created: Duration::ZERO,
            timeout: Duration::ZERO,
            started: None,
            ended: None,
            state: State::Queued,
            is_ahead: false,
        }
    }
}

#[derive(Debug)]
struct Ring {
    records: Vec<Record>,
    capacity: usize,
    created: u64,
    /// Where the next is written.
    next: usize,
    totals: Totals,
}

impl Ring {
    /// Writes an operation down under the next number.
    #[inline]
    fn write(&mut self, record: impl FnOnce(u64) -> Record) -> Entry {
        let (number, at, is_full) = (self.created, self.next, self.records.len() == self.capacity);
        self.created += 1;
        self.next = if at + 1 < self.capacity { at + 1 } else { 0 };
        let without_room;
        let record = match self.records.get_mut(at) {
            // Made where it belongs: a small operation would notice a copy.
            Some(place) => {
                *place = record(number);
                &*place
            }
            None if is_full => {
                without_room = record(number);
                &without_room
            }
            None => {
                self.records.push(record(number));
                &self.records[at]
            }
        };
        self.totals.call(record);
        Entry { number, op: record.op, created: record.created }
    }

    /// What is written under a number, if it is remembered. Its place is counted back from the newest: a small operation would notice a
    /// division.
    fn entry(&mut self, number: u64) -> Option<&mut Record> {
        let back = (self.created - number) as usize;
        let at = if back <= self.next { self.next - back } else { (self.next + self.capacity).checked_sub(back)? };
        self.records.get_mut(at).filter(|record| record.number == number)
    }
}

/// For how many operations there is room from the start; for more it is made as they come.
const AT_FIRST: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> Record {
        Record { number, ..Record::of(&Op::Barrier, Op::Barrier.need(0, 1), DType::U8, Site::caller()) }
    }

    fn opened(recorder: &Arc<Recorder>) -> Flight {
        let flight = Flight::new(recorder);
        flight.open(record);
        flight
    }

    #[test]
    fn the_oldest_entries_make_room() {
        let recorder = Arc::new(Recorder::new(3));
        let flights: Vec<Flight> = (0..4).map(|_| opened(&recorder)).collect();
        flights[0].end(Duration::from_secs(9), None, record);
        flights[3].start(Duration::from_secs(1));
        // One that never had to wait is written down at its end.
        let last = Flight::new(&recorder);
        assert_eq!((last.number(), last.record()), (None, None));
        last.end(Duration::from_secs(2), Some(ErrorKind::Peer), record);
        let records = recorder.records();
        assert_eq!(records.iter().map(|record| record.number).collect::<Vec<_>>(), [2, 3, 4]);
        let states = records.iter().map(|record| record.state).collect::<Vec<_>>();
        assert_eq!(states, [State::Queued, State::Started, State::Failed(ErrorKind::Peer)]);
    }

    #[test]
    fn each_is_found_under_its_number_while_it_is_remembered() {
        for capacity in 0..4 {
            let recorder = Arc::new(Recorder::new(capacity));
            for made in 1..10 {
                opened(&recorder);
                let found = |number| recorder.ring().entry(number).map(|record| record.number);
                let remembered = |number| (made - number <= capacity as u64).then_some(number);
                assert!((0..made).all(|number| found(number) == remembered(number)), "{made} of {capacity}");
            }
        }
    }

    #[test]
    fn one_that_waits_from_its_first_look_on_started_when_it_was_called() {
        let recorder = Arc::new(Recorder::new(3));
        let (called, at_once) = (Duration::from_secs(7), Flight::new(&recorder));
        at_once.open_started(|number| Record { created: called, ..record(number) });
        let queued = opened(&recorder);
        queued.open_started(|_| unreachable!("it is written down"));
        for (flight, number, created) in [(at_once, 0, called), (queued, 1, Duration::ZERO)] {
            let record = flight.record().expect("it is remembered");
            assert_eq!((record.number, record.created, record.started), (number, created, Some(created)));
            assert_eq!(record.state, State::Started);
        }
    }

    #[test]
    fn a_recorder_without_room_remembers_nothing() {
        let recorder = Arc::new(Recorder::new(0));
        opened(&recorder).start(Duration::ZERO);
        assert!(recorder.records().is_empty());
    }
}
