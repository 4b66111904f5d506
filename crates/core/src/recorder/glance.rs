//! A glance: how a group stands at this moment, without a copy of all that is remembered.

use super::{Record, Recorder, Ring, State, Totals};
use crate::OpKind;

/// How a group stands on this rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Glance {
    /// What it has done since it was made.
    pub totals: Totals,
    /// The operation that was called last.
    pub last: Option<Record>,
    /// The collective that was called last, where it is remembered.
    pub last_collective: Option<Record>,
    /// The oldest collective that has not ended, where it is remembered.
    pub pending_collective: Option<Record>,
    /// The oldest message that has not ended, where it is remembered.
    pub pending_message: Option<Record>,
    /// The oldest collective that has not ended and is waited for.
    pub awaited_collective: Option<Record>,
    /// The oldest message that has not ended and is waited for.
    pub awaited_message: Option<Record>,
}

impl Recorder {
    /// How the group stands. Operations wait for as long as this looks through what is remembered: some microseconds at most.
    pub fn glance(&self) -> Glance {
        let ring = self.ring();
        let mut glance = Glance { totals: ring.totals.clone(), ..Glance::default() };
        let mut pending = glance.totals.pending();
        for record in ring.newest_first() {
            let is_message = matches!(record.op, OpKind::Send | OpKind::Recv);
            glance.last.get_or_insert(*record);
            if !is_message {
                glance.last_collective.get_or_insert(*record);
            }
            if matches!(record.state, State::Queued | State::Started) {
                pending = pending.saturating_sub(1);
                let (pending, awaited) = match is_message {
                    true => (&mut glance.pending_message, &mut glance.awaited_message),
                    false => (&mut glance.pending_collective, &mut glance.awaited_collective),
                };
                *pending = Some(*record);
                if !record.is_ahead {
                    *awaited = Some(*record);
                }
            }
            if pending == 0 && glance.last_collective.is_some() {
                break;
            }
        }
        glance
    }
}

impl Ring {
    fn newest_first(&self) -> impl Iterator<Item = &Record> {
        let (newer, older) = self.records.split_at(self.next);
        newer.iter().rev().chain(older.iter().rev())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::recorder::Flight;
    use crate::{DType, ErrorKind, Op, Site};

    fn call(recorder: &Arc<Recorder>, op: &Op) -> Flight {
        let flight = Flight::new(recorder);
        flight.open(|number| Record { number, ..Record::of(op, op.need(0, 2), DType::F32, Site::caller()) });
        flight
    }

    fn end(flight: &Flight, now: Duration, error: Option<ErrorKind>) {
        flight.end(now, error, |_| unreachable!("it is written down"));
    }

    fn numbers(glance: &Glance) -> [Option<u64>; 4] {
        let Glance { last, last_collective, pending_collective, pending_message, .. } = glance;
        [last, last_collective, pending_collective, pending_message]
            .map(|record| record.as_ref().map(|record| record.number))
    }

    #[test]
    fn a_glance_finds_the_oldest_that_has_not_ended() {
        let recorder = Arc::new(Recorder::new(4));
        assert_eq!(recorder.glance(), Glance::default());
        let send = Op::Send { count: 3, to: 1, tag: 0 };
        let flights = [&Op::Barrier, &send, &Op::Barrier, &send].map(|op| call(&recorder, op));
        assert_eq!(numbers(&recorder.glance()), [Some(3), Some(2), Some(0), Some(1)]);
        end(&flights[0], Duration::ZERO, None);
        end(&flights[1], Duration::ZERO, Some(ErrorKind::Peer));
        assert_eq!(numbers(&recorder.glance()), [Some(3), Some(2), Some(2), Some(3)]);
        end(&flights[2], Duration::ZERO, None);
        end(&flights[3], Duration::ZERO, None);
        assert_eq!(numbers(&recorder.glance()), [Some(3), Some(2), None, None]);
        let totals = recorder.glance().totals;
        assert_eq!((totals.of(OpKind::Send).input_bytes, totals.of(OpKind::Send).ended), (24, 2));
    }

    #[test]
    fn what_is_waited_for_is_told_beside_what_was_begun_ahead() {
        let recorder = Arc::new(Recorder::new(4));
        let flights = [(); 3].map(|()| call(&recorder, &Op::Barrier));
        flights[0].set_ahead(true);
        flights[2].set_ahead(true);
        let numbers = || {
            let Glance { pending_collective, awaited_collective, .. } = recorder.glance();
            [pending_collective, awaited_collective].map(|record| record.map(|record| record.number))
        };
        assert_eq!(numbers(), [Some(0), Some(1)]);
        flights[0].set_ahead(false);
        assert_eq!(numbers(), [Some(0), Some(0)]);
        flights[..2].iter().for_each(|flight| end(flight, Duration::ZERO, None));
        assert_eq!(numbers(), [Some(2), None]);
    }

    #[test]
    fn what_is_no_longer_remembered_is_counted_all_the_same() {
        for capacity in [0, 1] {
            let recorder = Arc::new(Recorder::new(capacity));
            let early = call(&recorder, &Op::Barrier);
            let late = call(&recorder, &Op::Send { count: 1, to: 1, tag: 0 });
            assert_eq!(recorder.glance().totals.pending(), 2);
            end(&early, Duration::from_secs(2), Some(ErrorKind::Timeout));
            end(&late, Duration::from_secs(1), None);
            let glance = recorder.glance();
            assert_eq!((glance.totals.pending(), glance.last.is_some()), (0, capacity > 0));
            let barrier = glance.totals.of(OpKind::Barrier);
            assert_eq!((barrier.failed(ErrorKind::Timeout), barrier.queued_ns), (1, 2_000_000_000));
        }
    }
}
