//! What a rank writes down before it waits, whom it waits for and until when, and who is why it cannot go on.

use std::time::Instant;

use phalanx_core::{Call, Error, Last, Result, Stuck, Waiting};

use super::Inner;
use crate::fate;
use crate::pulse::Pulse;
use crate::stage::Playing;
use crate::verdict;

impl Inner {
    /// That the thread that keeps the group still runs: without it a failure of a peer would not be known.
    pub(super) fn check_keeper(&self, pulse: &mut Pulse) -> Result<()> {
        match pulse.has_stopped(self.fate.rounds(), Instant::now()) {
            false => Ok(()),
            true => Err(fate::unkept(self.rank)),
        }
    }

    /// When a call that is written down has taken too long; never if that is beyond what a clock can tell.
    pub(super) fn deadline(&self, call: &Call) -> Option<Instant> {
        self.began.checked_add(call.flight.created()?)?.checked_add(call.timeout)
    }

    /// Writes a call down that is about to wait, and returns when it has taken too long.
    pub(super) fn open(&self, call: &Call) -> Option<Instant> {
        if call.flight.created().is_none() {
            call.open(self.now());
        }
        self.deadline(call)
    }

    /// Writes down for the other ranks what this one has begun.
    pub(super) fn enrol(&self, call: &Call) {
        if call.flight.is_recorded() {
            self.fate.roll.begin(self.rank, &call.fingerprint);
        }
    }

    /// A peer that is still at an earlier collective, which this rank began otherwise, is why the two disagree now.
    pub(super) fn explain(&self, call: &Call, playing: &Playing<'_>, error: Error) -> Error {
        match (&error, playing.heard()) {
            (Error::Desync(_), Some((peer, theirs))) if theirs.sequence != call.sequence => {
                self.fate.roll.compare_past(self.rank, peer, &theirs).err().unwrap_or(error)
            }
            _ => error,
        }
    }

    /// Whom a collective waits for: the ranks that never came to it, or else the peers of the step that it is stuck in.
    pub(super) fn stuck(&self, call: &Call, playing: &mut Playing<'_>) -> Vec<Stuck> {
        let absent = self.absent(call, call.sequence);
        if absent.is_empty() { playing.stuck() } else { absent }
    }

    /// The other ranks that have not come to this number, for a call that waits for them.
    pub(super) fn absent(&self, call: &Call, sequence: u32) -> Vec<Stuck> {
        let absent = self.fate.roll.absent(sequence).into_iter().filter(|&rank| rank != self.rank).enumerate();
        absent.map(|(at, peer)| Stuck { peer, on: Waiting::Coming { last: self.last(call, peer, at == 0) } }).collect()
    }

    /// What a rank called last, and where this one called the same, unless the two say that they called from elsewhere.
    fn last(&self, call: &Call, rank: usize, with_site: bool) -> Option<Last> {
        let print = self.fate.roll.last(rank)?;
        let site = call.flight.site_of(print.sequence).filter(|site| print.site == 0 || print.at(*site) == print);
        let site = site.filter(|_| with_site).map(|site| verdict::short(&site.to_string())).unwrap_or_default();
        Some(Last { op: print.op, sequence: print.sequence, site })
    }
}
