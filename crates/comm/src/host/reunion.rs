//! The end of a round in which ranks disagree: each is told of it once, and comes back with its next call.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use phalanx_core::backend::Number;
use phalanx_core::{Error, OpKind, PeerReason, Result};

use super::{Host, Inner};
use crate::fate::{Return, is_before};
use crate::moment;
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

    /// Leaves a round that is over, although calls that came too late may still hold it: no thread, link or socket of it
    /// remains.
    pub(crate) fn leave(&self) {
        let inner = &self.inner;
        inner.lane.close();
        inner.bell.ring();
        inner.kinship.leave(&inner.fate);
        inner.stage.lock().unwrap_or_else(PoisonError::into_inner).mesh.close();
        drop(inner.presence.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Waits until all ranks have come back after a disagreement, and all know that; returns the first number that none of them has
    /// used. A rank that gives up before is told of to all, and nobody goes on; one that does so later goes on with the others, so that
    /// nobody waits for it. `late` makes the error of a rank that is waited for too long.
    pub(crate) fn reunite(&self, deadline: Option<Instant>, late: impl FnOnce(Vec<usize>) -> Error) -> Result<u32> {
        let inner = &self.inner;
        let end = match inner.ends_what_came_before(deadline) {
            true => inner.meet(deadline, late),
            false => Err(late(vec![])),
        };
        end.inspect_err(|error| {
            // Whatever this rank has heard that the others have not: nobody is to wait for it. That another one parted they hear as well,
            // and are to name that one.
            if inner.parted().is_none() {
                inner.give_up(error.clone());
            }
        })
    }
}

impl Inner {
    /// Waits until the turns before the one that ranks disagree about are over; false when that takes too long. The links that they need
    /// are closed once all are back.
    fn ends_what_came_before(&self, deadline: Option<Instant>) -> bool {
        let Some(desync) = self.fate.quarrel().filter(|_| self.over().is_none()) else { return true };
        self.lane.comes_to(desync.sequence, deadline.map_or(Duration::MAX, moment::left))
    }

    /// Comes back, and waits for the others as [`reunite`](Host::reunite) tells.
    fn meet(&self, deadline: Option<Instant>, late: impl FnOnce(Vec<usize>) -> Error) -> Result<u32> {
        self.fate.come_back(self.rank, self.numbers.upcoming());
        let mut patience = Patience::until(&self.bell, self.crowd, deadline);
        let mut parted = None;
        loop {
            let returned: Vec<Option<Return>> = self.fate.returned().collect();
            let upcoming = |said: &Option<Return>| match said {
                Some(Return::Back(upcoming) | Return::Going(upcoming)) => Some(*upcoming),
                _ => None,
            };
            if let Some(all) = returned.iter().map(upcoming).collect::<Option<Vec<u32>>>() {
                if returned.iter().all(|said| matches!(said, Some(Return::Going(_)))) {
                    return Ok(all.into_iter().max().unwrap_or_default());
                }
                if matches!(returned[self.rank], Some(Return::Back(_))) {
                    self.fate.go_on(self.rank, all[self.rank]);
                    // The others go on with this rank from here on, and have only to wake up.
                    patience = Patience::until(&self.bell, self.crowd, at_least(deadline, WAKING));
                    continue;
                }
            }
            if let Some(lost) = self.fate.lost_since() {
                return Err(lost);
            }
            if let Some(error) = self.parted() {
                // Mostly because of a rank that was lost, of which this one may be about to hear.
                let since: Instant = *parted.get_or_insert_with(Instant::now);
                let is_own = returned[self.rank] == Some(Return::Abandoned);
                if is_own || since.elapsed() >= NEWS || !patience.wait() {
                    return Err(error);
                }
            } else if !patience.wait() {
                let awaited = |is_awaited: fn(&Option<Return>) -> bool| -> Vec<usize> {
                    (0..returned.len()).filter(|&rank| is_awaited(&returned[rank])).collect()
                };
                let absent = awaited(Option::is_none);
                let is_undecided = |said: &Option<Return>| matches!(said, Some(Return::Back(_)));
                return Err(late(if absent.is_empty() { awaited(is_undecided) } else { absent }));
            }
        }
    }

    /// That a rank has given the group up or left it.
    fn parted(&self) -> Option<Error> {
        let left = |rank| Error::peer(rank, PeerReason::Left, "its group was dropped");
        self.abandoned().or_else(|| self.first_that_said(Return::Gone).map(left))
    }

    /// Why ranks that disagree will not come together again, as far as is known.
    pub(super) fn over(&self) -> Option<Error> {
        self.fate.lost_since().or_else(|| self.abandoned())
    }

    /// Gives the group up for this reason, which may have failed before.
    pub(super) fn give_up(&self, why: Error) {
        // Before it is known that it has: whoever sees that looks why.
        self.gave_up.get_or_init(|| why.in_its_wake());
        self.fate.abandon(self.rank);
    }

    /// That a rank has given the group up. This one knows why it has itself.
    fn abandoned(&self) -> Option<Error> {
        let rank = self.first_that_said(Return::Abandoned)?;
        let has_itself = self.fate.returned().nth(self.rank) == Some(Some(Return::Abandoned));
        if let Some(why) = self.gave_up.get().filter(|_| has_itself) {
            return Some(why.clone());
        }
        Some(Error::aborted(format!("rank {} aborted the group", self.kinship.world_rank(rank))))
    }

    fn first_that_said(&self, end: Return) -> Option<usize> {
        self.fate.returned().position(|said| said == Some(end))
    }
}

/// A deadline, but not before so long from now.
pub(crate) fn at_least(deadline: Option<Instant>, least: Duration) -> Option<Instant> {
    deadline.map(|deadline| deadline.max(Instant::now() + least))
}

/// How long a rank that goes on with the others waits for them, though its time be over: none of them may find it missing.
pub(crate) const WAKING: Duration = Duration::from_millis(200);
/// How long a rank looks for news of a loss once another has parted. Those who look whether processes are stopped do so at times of their own,
/// a quarter of a second apart.
const NEWS: Duration = Duration::from_millis(400);
