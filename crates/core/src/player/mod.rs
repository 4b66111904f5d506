//! The player: carries out one rank's schedule over a mesh, a poll at a time. It never waits, sleeps or asks the time.

mod beside;
mod frame;
mod lending;
mod local;
mod memory;
mod moving;
#[cfg(test)]
mod tests;
mod viewing;

pub(crate) use frame::{Head, Incoming, Outgoing, Part};
use lending::Standing;
pub use memory::Data;
use memory::Memory;
use moving::Moving;
use viewing::{Join, Number};

use crate::error::{PeerReason, Stuck, Waiting};
use crate::fingerprint::Fingerprint;
use crate::link::{LinkError, Mesh};
use crate::reduce::{Factor, ReduceOp};
use crate::schedule::{Lending, Schedule, Step};
use crate::{DType, Error, Op, Result};

/// What is played: the operation, what its frames say about it, and this rank's part in it.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// The operation.
    pub op: &'a Op,
    /// The type of the elements.
    pub dtype: DType,
    /// This rank's factor, for the reduction that has one.
    pub factor: Option<Factor>,
    /// What the first frame to every peer says.
    pub fingerprint: Fingerprint,
    /// This rank.
    pub rank: usize,
    /// How many ranks there are.
    pub size: usize,
    /// What this rank does.
    pub schedule: &'a Schedule,
    /// Which operations write past the processor's caches.
    pub past_caches: PastCaches,
}

/// From how many bytes of its longer buffer on an operation writes its result past the processor's caches.
#[derive(Clone, Copy, Debug)]
pub struct PastCaches {
    /// What the rank copies in its own memory, where the result is beside what it gives.
    pub own: usize,
    /// What comes from its peers there.
    pub beside: usize,
    /// A broadcast, whose result the next one may give on from there.
    pub broadcast: usize,
}

impl PastCaches {
    /// No operation.
    pub const NEVER: PastCaches = PastCaches { own: usize::MAX, beside: usize::MAX, broadcast: usize::MAX };
}

/// Plays operations, one after the other. Between two it keeps nothing but memory: a small operation has no time to come by it anew.
#[derive(Debug, Default)]
pub struct Player {
    /// What became of lending, which is before all steps where the schedule has it.
    standing: Standing,
    /// The current step.
    at: usize,
    moving: Moving,
    /// The number of this operation's first offer, once it began.
    first_offer: Option<u64>,
    scratch: Vec<u8>,
}

/// What a poll brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All is played.
    Done,
    /// Something moved: poll again soon.
    Moved,
    /// Nothing moved.
    Idle,
}

impl Player {
    /// Begins an operation. What is left of the one before is forgotten.
    ///
    /// # Errors
    ///
    /// [`Setup`](Error::Setup) where there is not enough memory to work in.
    pub fn begin(&mut self, task: &Task<'_>) -> Result<()> {
        let schedule = task.schedule;
        grow(&mut self.scratch, schedule.scratch.saturating_mul(task.dtype.byte_len()))?;
        self.moving.begin();
        self.standing = if schedule.lending.is_some() { Standing::Away } else { Standing::Declined };
        (self.at, self.first_offer) = (0, None);
        Ok(())
    }

    /// Plays on with the task that was begun as far as the peers let it, but for a bounded time: whoever polls has a deadline. After an error
    /// the operation is over and its output has no meaning.
    ///
    /// # Errors
    ///
    /// [`Desync`](Error::Desync) where a peer calls something else, [`Peer`](Error::Peer) where one is lost or what came is not what was sent,
    /// and [`Setup`](Error::Setup) for what this rank lacks itself; ranks are numbered as in the group.
    pub fn poll(&mut self, task: &Task<'_>, data: &mut Data<'_>, mesh: &mut Mesh) -> Result<Progress> {
        let played = self.play(task, data, mesh);
        mesh.announce();
        played
    }

    fn play(&mut self, task: &Task<'_>, data: &mut Data<'_>, mesh: &mut Mesh) -> Result<Progress> {
        let mut moved = false;
        let steps = &task.schedule.steps;
        if let Some(lending) = &task.schedule.lending
            && self.at == 0
        {
            match self.lend(task, lending, data, mesh)? {
                Progress::Done if self.standing.is_finished() => (self.at, moved) = (steps.len(), true),
                Progress::Done => {}
                waiting => return Ok(waiting),
            }
        }
        let most = self.at + MOST_STEPS;
        while let Some(step) = steps.get(self.at) {
            if self.at >= most {
                return Ok(Progress::Moved);
            }
            if self.take_both(task, step, data, mesh)? {
                (self.at, moved) = (self.at + 2, true);
                continue;
            }
            match self.take(task, step, data, mesh)? {
                Progress::Done => (self.at, moved) = (self.at + 1, true),
                Progress::Idle if !moved => return Ok(Progress::Idle),
                _ => return Ok(Progress::Moved),
            }
        }
        match self.settle(task, mesh)? {
            Progress::Idle if moved => Ok(Progress::Moved),
            settled => {
                if self.standing.is_finished() {
                    lending::written_by_peers(data.output);
                }
                Ok(settled)
            }
        }
    }

    /// The transfers that the current step waits for, or this rank where it waits for none.
    pub fn stuck(&self, task: &Task<'_>, mesh: &mut Mesh) -> Vec<Stuck> {
        let peers = self.awaited(task, mesh);
        let own = || vec![Stuck { peer: task.rank, on: Waiting::Working }];
        if peers.is_empty() { own() } else { peers }
    }

    fn awaited(&self, task: &Task<'_>, mesh: &mut Mesh) -> Vec<Stuck> {
        let giving = |peer| Stuck { peer, on: Waiting::Giving };
        let taking = |peer| Stuck { peer, on: Waiting::Taking };
        let behind = |mesh: &mut Mesh| -> Vec<Stuck> {
            mesh.windows().map(|windows| windows.behind()).unwrap_or_default().into_iter().map(giving).collect()
        };
        match self.standing {
            // To lend is an offer like any other.
            Standing::Away => return behind(mesh),
            Standing::Waits { .. } => {
                let windows = mesh.windows();
                return windows.map_or(vec![], |windows| {
                    task.peers().filter(|&peer| self.standing.awaits(peer, windows)).map(giving).collect()
                });
            }
            Standing::Finished { .. } | Standing::Declined => {}
        }
        match task.schedule.steps.get(self.at) {
            Some(Step::Move { send, recv }) => self.moving.stuck(*send, *recv),
            Some(Step::Offer { .. }) => behind(mesh),
            Some(Step::Pull { from, .. }) => vec![giving(*from)],
            Some(Step::PullAll { from, offer, .. }) => {
                from.iter().map(|part| part.rank).filter(|&peer| self.awaits(mesh, peer, *offer)).map(giving).collect()
            }
            None => {
                mesh.windows().map(|windows| windows.readers()).unwrap_or_default().into_iter().map(taking).collect()
            }
            _ => vec![],
        }
    }

    /// The fingerprint that came last in the current step, and from whom: after a disagreement, the one that disagrees.
    pub fn heard(&self, task: &Task<'_>) -> Option<(usize, Fingerprint)> {
        match task.schedule.steps.get(self.at) {
            Some(Step::Move { recv: Some(recv), .. }) => self.moving.head().map(|print| (recv.from, print)),
            _ => None,
        }
    }

    /// Lends this rank's memory, and makes its slice final where all do.
    fn lend(&mut self, task: &Task<'_>, lending: &Lending, data: &mut Data<'_>, mesh: &mut Mesh) -> Result<Progress> {
        let mut memory = Memory::of(task, data, &mut []);
        let progress = self.standing.poll(task, lending, &mut memory, mesh)?;
        if let Standing::Finished { offer } = self.standing {
            self.first_offer = Some(offer);
        }
        Ok(progress)
    }

    fn take(&mut self, task: &Task<'_>, step: &Step, data: &mut Data<'_>, mesh: &mut Mesh) -> Result<Progress> {
        let mut memory = Memory::of(task, data, &mut self.scratch);
        match step {
            Step::Move { send, recv } => self.moving.poll(task, (*send, *recv), &mut memory, mesh),
            Step::Offer { spans, lease } => {
                let windows = mesh.windows().map_err(|error| lost(task.rank, error))?;
                let first = *self.first_offer.get_or_insert_with(|| {
                    windows.begin(memory.pulls_past_caches());
                    windows.offers()
                });
                viewing::offer(task, first, (spans, *lease), &memory, windows)
            }
            Step::Pull { from, offer, start, into } => {
                let offer = Number { first: self.first_offer.unwrap_or_default(), place: *offer as u64 };
                viewing::pull(task, (*from, offer, *start), *into, &mut memory, mesh)
            }
            step => match Join::of(step, self.first_offer.unwrap_or_default()) {
                Some(join) => viewing::pull_all(task, &join, &mut memory, mesh),
                None => local::take(task, step, &mut memory).map(|()| Progress::Done),
            },
        }
    }

    /// Takes an offer and the join that follows it at once, where nothing is missing for either; else neither.
    fn take_both(&mut self, task: &Task<'_>, step: &Step, data: &mut Data<'_>, mesh: &mut Mesh) -> Result<bool> {
        let (Step::Offer { spans, lease }, Some(first)) = (step, self.first_offer) else { return Ok(false) };
        let next = task.schedule.steps.get(self.at + 1);
        let Some(join) = next.and_then(|next| Join::of(next, first)) else { return Ok(false) };
        let mut memory = Memory::of(task, data, &mut self.scratch);
        beside::offer_and_pull_all(task, (spans, *lease), &join, &mut memory, mesh)
    }

    /// Does not end before the peers have read what they read in this rank's memory.
    fn settle(&mut self, task: &Task<'_>, mesh: &mut Mesh) -> Result<Progress> {
        if self.first_offer.is_none() {
            return Ok(Progress::Done);
        }
        let windows = mesh.windows().map_err(|error| lost(task.rank, error))?;
        let settled = windows.try_settle().map_err(|error| lost(task.rank, error))?;
        Ok(if settled { Progress::Done } else { Progress::Idle })
    }

    fn awaits(&self, mesh: &mut Mesh, peer: usize, offer: usize) -> bool {
        let offer = self.first_offer.unwrap_or_default() + offer as u64;
        mesh.windows().is_ok_and(|windows| windows.view(peer, offer, 0..0).is_ok_and(|view| view.is_none()))
    }
}

impl Task<'_> {
    /// The other ranks.
    fn peers(&self) -> impl Iterator<Item = usize> {
        let rank = self.rank;
        (0..self.size).filter(move |&peer| peer != rank)
    }

    /// What the first frame between this rank and `peer` says. Both know how much one gives the other.
    fn fingerprint(&self, peer: usize, giving: bool) -> Fingerprint {
        let count = match self.op {
            Op::AllToAll { give, .. } if giving => give.of(peer) as u64,
            Op::AllToAll { take, .. } => take.of(peer) as u64,
            _ => self.fingerprint.count,
        };
        Fingerprint { count, ..self.fingerprint }
    }

    /// What stands at the head of this rank's offer at `place` among those of the operation.
    fn head(&self, place: u8) -> [u8; Fingerprint::BYTE_LEN] {
        Fingerprint { offer: place, ..self.fingerprint(self.rank, true) }.encode()
    }

    /// Compares what stands at the head of a peer's offer with what does there at `place`.
    fn compare_head(&self, peer: usize, head: &[u8], place: u8) -> Result<()> {
        self.compare(peer, head, &Fingerprint { offer: place, ..self.fingerprint(peer, false) })
    }

    /// How elements are joined when these are all inputs, or some of them: an average divides once, at the end.
    fn join(&self, whole: bool) -> ReduceOp {
        match self.op.reduce().unwrap_or(ReduceOp::Sum) {
            ReduceOp::Avg if !whole => ReduceOp::Sum,
            reduce => reduce,
        }
    }

    /// Compares what a peer says with what is expected of it.
    fn compare(&self, peer: usize, head: &[u8], expected: &Fingerprint) -> Result<()> {
        if head == expected.encode() {
            return Ok(());
        }
        let bytes = head.try_into().map_err(|_| corrupt(peer, "a frame without a fingerprint"))?;
        let theirs = Fingerprint::decode(bytes).map_err(|bad| corrupt(peer, bad.to_string()))?;
        expected.disagreement(&theirs, self.rank, peer, true).map_or(Ok(()), Err)
    }
}

/// The error of a link to `peer`. What this rank itself lacks is no peer's end.
pub(crate) fn lost(peer: usize, error: LinkError) -> Error {
    match error {
        LinkError::Closed { rank } => Error::peer(rank.unwrap_or(peer), PeerReason::Dead, "connection closed"),
        LinkError::Ended { rank } | LinkError::Adrift { rank } => {
            Error::peer(rank, PeerReason::Dead, error.to_string())
        }
        LinkError::Left { rank } => Error::peer(rank.unwrap_or(peer), PeerReason::Left, "its group was dropped"),
        LinkError::Corrupt { rank, detail } => corrupt(rank.unwrap_or(peer), detail),
        LinkError::Failed(detail) => Error::setup("exchange with a peer", detail),
    }
}

/// The error of bytes from `peer` that it cannot have sent.
pub(crate) fn corrupt(peer: usize, detail: impl Into<String>) -> Error {
    Error::peer(peer, PeerReason::Corrupt, detail)
}

/// Makes memory to work in at least so long. What is in it has no meaning, nor is it zeros, with which much would be right by chance.
fn grow(memory: &mut Vec<u8>, byte_len: usize) -> Result<()> {
    let missing = byte_len.saturating_sub(memory.len());
    memory.try_reserve_exact(missing).map_err(|error| Error::setup(format!("{byte_len} bytes to work in"), error))?;
    memory.resize(memory.len() + missing, UNSET);
    Ok(())
}

/// In every byte of memory that nothing was written to.
const UNSET: u8 = 0xa5;
/// How many steps one poll takes at most, or begins.
const MOST_STEPS: usize = 8;
