//! The end of a round in which ranks disagree: each is told of it once, and comes back with its next call.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use phalanx_core::backend::Number;
use phalanx_core::{Error, OpKind, PeerReason, Result};

use super::{Host, Inner};
use crate::fate::{Return, is_before};
use crate::patience::Patience;

/// What ranks disagreed about in a round.
#[derive(Debug)]
pub(crate) struct Quarrel {
    pub(crate) error: Error,
    /// Whether a call of this rank has told of it before.
    pub(crate) has_told: bool,
}

impl Host {
    /// The next number of this round, unless the ranks disagree in it.
    pub(crate) fn number(&self, op: OpKind) -> Result<Number, Quarrel> {
        let inner = &self.inner;
        match inner.fate.quarrel() {
            Some(desync) if inner.is_at_home().is_ok() && is_before(desync.sequence, inner.numbers.upcoming()) => {
                let has_told = inner.has_told.swap(true, Ordering::AcqRel);
                Err(Quarrel { error: desync.into(), has_told })
            }
            // A rank that has not come to the operation in question goes on until it does. Of any other failure the call tells.
            _ => Ok(inner.numbers.next(op)),
        }
    }

    /// Ends what is under way in a round that is over.
    pub(crate) fn retire(&self, quarrel: &Error) {
        self.inner.lane.break_off();
        self.inner.post().close(quarrel, self.inner.now());
    }

    /// Leaves a round that is over, although calls that came too late may still hold it: no thread, link or descriptor of it
    /// remains.
    pub(crate) fn leave(&self) {
        let inner = &self.inner;
        inner.lane.close();
        inner.bell.ring();
        inner.stage.lock().unwrap_or_else(PoisonError::into_inner).mesh.close();
        drop(inner.presence.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Waits until all ranks have come back after a disagreement, and all know that; returns the first number that none of them has
    /// used. A rank that gives up before is told of to all, and nobody goes on; one that does so later goes on with the others, so that
    /// nobody waits for it. `late` makes the error of a rank that is waited for too long.
    pub(crate) fn reunite(&self, deadline: Option<Instant>, late: impl FnOnce(Vec<usize>) -> Error) -> Result<u32> {
        let inner = &self.inner;
        inner.fate.come_back(inner.rank, inner.numbers.upcoming());
        let mut patience = Patience::until(&inner.bell, inner.crowd, deadline);
        loop {
            let returned: Vec<Option<Return>> = inner.fate.returned().collect();
            let who = |end| returned.iter().position(|said| *said == Some(end));
            if let Some(rank) = who(Return::Abandoned) {
                return Err(inner.given_up_by(rank));
            }
            if let Some(rank) = who(Return::Gone) {
                return Err(Error::peer(rank, PeerReason::Left, "its group was dropped"));
            }
            let upcoming = |said: &Option<Return>| match said {
                Some(Return::Back(upcoming) | Return::Going(upcoming)) => Some(*upcoming),
                _ => None,
            };
            if let Some(all) = returned.iter().map(upcoming).collect::<Option<Vec<u32>>>() {
                if returned.iter().all(|said| matches!(said, Some(Return::Going(_)))) {
                    return Ok(all.into_iter().max().unwrap_or_default());
                }
                if matches!(returned[inner.rank], Some(Return::Back(_))) {
                    inner.fate.go_on(inner.rank, all[inner.rank]);
                    // The others go on with this rank from here on, and have only to wake up.
                    patience = Patience::until(&inner.bell, inner.crowd, at_least(deadline, WAKING));
                    continue;
                }
            }
            if let Some(lost) = inner.fate.lost_since() {
                return Err(lost);
            }
            if !patience.wait() {
                let awaited = |is_awaited: fn(&Option<Return>) -> bool| -> Vec<usize> {
                    (0..returned.len()).filter(|&rank| is_awaited(&returned[rank])).collect()
                };
                let absent = awaited(Option::is_none);
                let is_undecided = |said: &Option<Return>| matches!(said, Some(Return::Back(_)));
                inner.fate.abandon(inner.rank);
                return Err(late(if absent.is_empty() { awaited(is_undecided) } else { absent }));
            }
        }
    }
}

impl Inner {
    /// Why ranks that disagree will not come together again, as far as is known.
    pub(super) fn over(&self) -> Option<Error> {
        let abandoned = self.fate.returned().position(|said| said == Some(Return::Abandoned));
        self.fate.lost_since().or_else(|| abandoned.map(|rank| self.given_up_by(rank)))
    }

    fn given_up_by(&self, rank: usize) -> Error {
        Error::aborted(format!("rank {} aborted the group", self.kinship.world_rank(rank)))
    }
}

/// A deadline, but not before so long from now.
pub(crate) fn at_least(deadline: Option<Instant>, least: Duration) -> Option<Instant> {
    deadline.map(|deadline| deadline.max(Instant::now() + least))
}

/// How long a rank that goes on with the others waits for them, though its time be over: none of them may find it missing.
pub(crate) const WAKING: Duration = Duration::from_millis(200);
