//! Who may take part, and who has taken which rank: one job, one epoch at a time, one session a rank.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::secure::{Claim, Denial, JobName, Session};

/// A rank that was taken in the current epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seat {
    /// The rank.
    pub rank: u32,
    /// The session that took it, for as long as the epoch lasts.
    pub session: Session,
    /// Where its first connection came from: an address, or a process of this machine.
    pub peer: String,
    /// When it was taken.
    pub joined: Instant,
    /// How many connections it has now; none when it is gone or between two requests.
    pub connections: usize,
}

/// The seats of one epoch.
#[derive(Debug)]
pub(super) struct Roster {
    job: Option<JobName>,
    epoch: u32,
    /// How many ranks there are, 0 where any number is accepted.
    world: u32,
    seats: BTreeMap<u32, Seat>,
}

impl Roster {
    pub(super) fn new(job: Option<JobName>, epoch: u32, world: u32) -> Roster {
        Roster { job, epoch, world, seats: BTreeMap::new() }
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Every seat that was taken, by rank.
    pub(super) fn seats(&self) -> Vec<Seat> {
        self.seats.values().cloned().collect()
    }

    /// Begins another epoch, in which no rank is taken.
    pub(super) fn advance(&mut self, epoch: u32, world: u32) {
        (self.epoch, self.world) = (epoch, world);
        self.seats.clear();
    }

    /// Notes a connection of the claimant, and takes its rank if it claims one.
    pub(super) fn join(&mut self, claim: &Claim, peer: &str, now: Instant) -> Result<(), Denial> {
        self.check(claim)?;
        let Some(rank) = claim.rank() else { return Ok(()) };
        if self.seats.len() >= SEATS && self.world == 0 && !self.seats.contains_key(&rank) {
            return Err(Denial::Full { why: format!("{SEATS} ranks were taken in this epoch") });
        }
        let new = || Seat { rank, session: claim.session(), peer: peer.to_owned(), joined: now, connections: 0 };
        let seat = self.seats.entry(rank).or_insert_with(new);
        if seat.session != claim.session() {
            return Err(Denial::RankTaken { rank, by: seat.peer.clone() });
        }
        seat.connections += 1;
        Ok(())
    }

    /// Notes the end of a connection that joined. Its seat stays taken.
    pub(super) fn leave(&mut self, claim: &Claim) {
        if claim.epoch() != self.epoch {
            return;
        }
        if let Some(seat) = claim.rank().and_then(|rank| self.seats.get_mut(&rank)) {
            seat.connections = seat.connections.saturating_sub(1);
        }
    }

    fn check(&self, claim: &Claim) -> Result<(), Denial> {
        if let Some(job) = self.job.as_ref().filter(|job| *job != claim.job()) {
            return Err(Denial::WrongJob { job: job.as_str().to_owned() });
        }
        if claim.epoch() != self.epoch {
            return Err(Denial::WrongEpoch { claimed: claim.epoch(), current: self.epoch });
        }
        // Tools that take no rank need not know how many there are.
        let claimed = claim.world_size();
        if self.world != 0 && claimed != 0 && claimed != self.world {
            return Err(Denial::WrongWorld { claimed, current: self.world });
        }
        let past = |rank: &u32| *rank >= if self.world == 0 { claimed } else { self.world };
        match claim.rank().filter(past) {
            Some(rank) => Err(Denial::RankOutOfRange { rank, world: self.world }),
            None => Ok(()),
        }
    }
}

/// The most ranks of an epoch whose world has no size: each claims what it likes, and its seat is kept when it goes.
const SEATS: usize = 1 << 17;

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str) -> JobName {
        JobName::new(name).unwrap()
    }

    fn claim(epoch: u32) -> Claim {
        Claim::new(job("train"), epoch, Session::mint().unwrap())
    }

    fn join(roster: &mut Roster, claim: &Claim) -> Result<(), Denial> {
        roster.join(claim, "10.0.0.1:7", Instant::now())
    }

    #[test]
    fn a_rank_is_taken_once_an_epoch() {
        let mut roster = Roster::new(Some(job("train")), 3, 4);
        let (first, second) = (claim(3).member(1, 4).unwrap(), claim(3).member(1, 4).unwrap());
        join(&mut roster, &first).unwrap();
        join(&mut roster, &first).unwrap();
        assert_eq!(roster.seats()[0].connections, 2);
        let taken = Err(Denial::RankTaken { rank: 1, by: "10.0.0.1:7".to_owned() });
        assert_eq!(join(&mut roster, &second), taken);
        roster.leave(&first);
        roster.leave(&first);
        assert_eq!(roster.seats()[0].connections, 0);
        assert_eq!(join(&mut roster, &second), taken);
        join(&mut roster, &first).unwrap();
    }

    #[test]
    fn another_epoch_has_free_seats_and_lets_the_old_one_go() {
        let mut roster = Roster::new(None, 0, 2);
        let old = claim(0).member(0, 2).unwrap();
        join(&mut roster, &old).unwrap();
        roster.advance(1, 3);
        assert!(roster.seats().is_empty());
        assert_eq!(join(&mut roster, &old), Err(Denial::WrongEpoch { claimed: 0, current: 1 }));
        let new = claim(1).member(0, 3).unwrap();
        join(&mut roster, &new).unwrap();
        roster.leave(&old);
        assert_eq!((roster.seats()[0].connections, roster.epoch()), (1, 1));
    }

    #[test]
    fn a_world_without_a_size_has_an_end_too() {
        let mut roster = Roster::new(None, 0, 0);
        let member = |rank: usize| claim(0).member(rank as u32, u32::MAX).unwrap();
        let first = member(0);
        join(&mut roster, &first).unwrap();
        (1..SEATS).for_each(|rank| join(&mut roster, &member(rank)).unwrap());
        let full = Err(Denial::Full { why: "131072 ranks were taken in this epoch".to_owned() });
        assert_eq!(join(&mut roster, &member(SEATS)), full);
        join(&mut roster, &first).unwrap();
        roster.advance(1, 0);
        assert!(roster.seats().is_empty());
    }

    #[test]
    fn wrong_claims_are_told_what_is_right() {
        let mut roster = Roster::new(Some(job("other")), 0, 2);
        assert_eq!(join(&mut roster, &claim(0)), Err(Denial::WrongJob { job: "other".to_owned() }));
        let mut roster = Roster::new(Some(job("train")), 0, 2);
        let wide = claim(0).member(2, 3).unwrap();
        assert_eq!(join(&mut roster, &wide), Err(Denial::WrongWorld { claimed: 3, current: 2 }));
        join(&mut roster, &claim(0)).unwrap();
        join(&mut roster, &claim(0).world(2)).unwrap();
        assert!(roster.seats().is_empty());
        let mut open = Roster::new(None, 0, 0);
        join(&mut open, &wide).unwrap();
    }
}
