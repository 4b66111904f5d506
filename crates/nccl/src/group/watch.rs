//! The watch: one thread a group that ends operations in time, asks communicators how they are, and compares what ranks say of themselves.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use phalanx_core::store::StoreError;
use phalanx_core::{Desync, Error, Fingerprint, OpKind, PeerReason};

use super::flight::Flight;
use super::hall::{Hall, History, is_set, lock};
use super::standing::{Message, Standing, TOLD};
use super::votes;
use crate::api::{Cuda, Nccl, Process};

/// What the watch remembers from one round to the next.
struct Watch {
    beat: u64,
    next: Duration,
    /// Of each rank, the last beat, and for how long the store had answered when it was news.
    heard: Vec<Option<(u64, Duration)>>,
    /// For how long the store has answered in all. While it does not, nobody is heard, and that is no rank's silence.
    answered: Duration,
    /// When the last round began, if the store answered all that was asked in it.
    last: Option<Duration>,
    /// For how long it had, when another rank was first suspected.
    suspected: Option<Duration>,
    has_told_fate: bool,
    has_signalled: bool,
    has_abandoned: bool,
    /// Whether this rank has left, and whether the others were told so.
    has_left: bool,
    has_told_end: bool,
}

impl<N: Nccl, C: Cuda, P: Process> Hall<N, C, P> {
    /// The thread of the watch.
    pub(super) fn watch(self: Arc<Hall<N, C, P>>) {
        let heard = vec![None; self.layout.size()];
        let mut watch = Watch {
            beat: 0,
            next: self.now(),
            heard,
            answered: Duration::ZERO,
            last: None,
            suspected: None,
            has_told_fate: false,
            has_signalled: false,
            has_abandoned: false,
            has_left: false,
            has_told_end: false,
        };
        loop {
            let seen = self.bell.count();
            self.look_after(&mut watch);
            // Communicators may end much later, since each waits for the other ranks' there.
            if is_set(&self.is_closing) && self.lanes().iter().all(|lane| lane.has_emptied()) {
                self.tell_end(&mut watch);
            }
            if self.now() >= watch.next {
                self.beat(&mut watch);
                watch.next = self.now() + self.options.heartbeat;
            }
            if is_set(&self.is_closing) && self.is_at_rest(&watch) {
                break;
            }
            let first = self.under_way().iter().map(|flight| flight.deadline).min();
            self.bell.wait(seen, Some(first.map_or(watch.next, |first| first.min(watch.next))));
        }
        self.tell_end(&mut watch);
        // Dropped without the lock: what is freed with them calls the driver.
        self.stack.enter_thread();
        let lanes = std::mem::take(&mut *lock(&self.lanes));
        drop(lanes);
        // Also where it was not waited for.
        self.freeing.ends();
    }

    /// Whether all threads of lanes have ended that will, and what operations had is freed.
    fn is_at_rest(&self, watch: &Watch) -> bool {
        let told = self.fate().is_none_or(|fate| {
            // A store that is gone is not waited for.
            let is_over = fate.at + self.options.abort_timeout <= self.now();
            is_over || (watch.has_told_fate && watch.has_signalled)
        });
        let has_ended = || self.lanes().iter().all(|lane| lane.has_ended()) && self.freeing.ends();
        told && lock(&self.strays).is_empty() && (watch.has_abandoned || has_ended())
    }

    /// Ends what has taken too long, and gives up aborts that do.
    fn look_after(self: &Arc<Hall<N, C, P>>, watch: &mut Watch) {
        let now = self.now();
        if let Some(late) = self.under_way().into_iter().find(|flight| flight.deadline <= now) {
            // What others have said by now says who is missing.
            self.listen(watch, self.others(0, usize::MAX));
            self.fail(self.late(&late), Some(&late));
        }
        match self.fate() {
            Some(fate) if fate.at + self.options.abort_timeout <= now && !watch.has_abandoned => {
                watch.has_abandoned = true;
                self.lanes().iter().filter(|lane| !lane.is_quiet()).for_each(|lane| lane.abandon());
                self.lanes().iter().for_each(|lane| lane.ring());
            }
            _ => {}
        }
        self.look_after_strays();
    }

    /// Tells the others how this rank stands, and hears how they do. A store that does not answer is asked once: whatever waits for it here
    /// makes deadlines late.
    fn beat(self: &Arc<Hall<N, C, P>>, watch: &mut Watch) {
        let answers = if self.layout.size() == 1 {
            watch.has_told_fate = true;
            true
        } else if (watch.has_told_end && !self.has_untold_fate(watch)) || self.tell(watch) {
            // Hashes are only told for a while, so all are asked for them.
            let most = if self.options.compares_results { usize::MAX } else { ASKED };
            self.listen(watch, self.others(watch.beat, most))
        } else {
            watch.last = None;
            false
        };
        // What ranks of this crate say of a failure says more, so it goes before.
        watch.has_signalled = watch.has_signalled || (self.fate().is_some() && self.tell_signals());
        if answers {
            self.hear_signals();
        }
        if self.fate().is_none()
            && let Some(error) = self.compare().or_else(|| self.lost(watch)).or_else(|| self.untraced(watch))
        {
            self.fail(error, self.under_way().first());
        }
    }

    /// Tells the others that this rank has left: nothing is heard of it after that.
    fn tell_end(&self, watch: &mut Watch) {
        watch.has_left = true;
        if !watch.has_told_end {
            self.tell(watch);
        }
    }

    /// Whether there is a failure that the others were not told.
    fn has_untold_fate(&self, watch: &Watch) -> bool {
        self.fate().is_some() && !watch.has_told_fate
    }

    /// Whether the store has answered.
    fn tell(&self, watch: &mut Watch) -> bool {
        if self.layout.size() == 1 {
            watch.has_told_end = watch.has_left;
            return true;
        }
        watch.beat += 1;
        let (messages, held) = (self.messages_alone(), self.held());
        let standing = {
            let history = lock(&self.history);
            let prints = history.prints.iter().map(|(print, _)| *print).collect();
            let digests = history.digests.iter().copied().collect();
            let met = history.met.iter().rev().take(TOLD).copied().collect();
            let Watch { beat, has_left, .. } = *watch;
            Standing { beat, has_left, called: history.called, prints, digests, messages, met, held }
        };
        let store = self.store.with_timeout(self.options.heartbeat);
        let key = format!("{STANDING}{}", self.layout.rank());
        let told = answer(store.set(&key, standing.encode()));
        if let Err(error) = &told {
            log::debug!("a rank's standing is not told: {error}");
        }
        if let Some(fate) = self.fate().filter(|_| !watch.has_told_fate) {
            let text = format!("rank {}: {}", self.world_rank(self.layout.rank()), self.in_world(fate.error));
            watch.has_told_fate = told.is_ok() && store.compare_set(FATE, "", text).is_ok();
        }
        watch.has_told_end = watch.has_left && told.is_ok();
        told.is_ok()
    }

    /// The ranks that are asked for in a round, which go round with the rounds.
    fn others(&self, round: u64, most: usize) -> Vec<usize> {
        turn(self.layout.rank(), self.layout.size(), round, most)
    }

    /// Hears how these ranks stand; whether the store has answered all.
    fn listen(self: &Arc<Hall<N, C, P>>, watch: &mut Watch, ranks: Vec<usize>) -> bool {
        let (now, mut told) = (self.now(), Vec::new());
        let fate = self.ask(ranks, &mut told);
        let last = std::mem::replace(&mut watch.last, fate.is_ok().then_some(now));
        watch.answered += watch.last.zip(last).map_or(Duration::ZERO, |(now, last)| now.saturating_sub(last));
        for (rank, standing) in told {
            if watch.heard[rank].is_none_or(|(beat, _)| beat != standing.beat) {
                watch.heard[rank] = Some((standing.beat, watch.answered));
            }
            lock(&self.standings)[rank] = Some(standing);
        }
        if let Ok(Some(text)) = &fate {
            let error = Error::aborted(String::from_utf8_lossy(text).into_owned());
            self.fail(error, self.under_way().first());
        }
        fate.is_ok()
    }

    /// Asks the store how ranks stand and what they failed of, up to the first question that it does not answer.
    fn ask(&self, ranks: Vec<usize>, told: &mut Vec<(usize, Standing)>) -> Result<Option<Vec<u8>>, StoreError> {
        let store = self.store.with_timeout(self.options.heartbeat);
        for rank in ranks {
            let bytes = answer(store.find(&format!("{STANDING}{rank}")))?;
            told.extend(bytes.and_then(|bytes| Standing::decode(&bytes)).map(|standing| (rank, standing)));
        }
        if self.fate().is_some() { Ok(None) } else { answer(store.find(FATE)) }
    }

    /// A rank that has not been heard for too long, or left while it was needed.
    fn lost(&self, watch: &Watch) -> Option<Error> {
        let standings = lock(&self.standings).clone();
        let (own, flights) = (self.layout.rank(), self.under_way());
        let unresponsive = self.options.unresponsive + self.options.heartbeat * (self.rounds() - 1);
        watch.heard.iter().enumerate().find_map(|(rank, heard)| {
            let (_, at) = (*heard)?;
            let silent = watch.answered.saturating_sub(at);
            if let Some(standing) = standings[rank].as_ref().filter(|standing| standing.has_left) {
                let is_needed = flights.iter().any(|flight| flight.needs(rank, own, standing));
                let detail = "while an operation waits for it";
                let is_late = silent >= self.options.heartbeat * 2;
                return (is_needed && is_late).then(|| Error::peer(rank, PeerReason::Left, detail));
            }
            let detail = format!("no sign of it for {silent:?}");
            (silent >= unresponsive).then(|| Error::peer(rank, PeerReason::Unresponsive, detail))
        })
    }

    /// In how many rounds each rank is asked for once.
    fn rounds(&self) -> u32 {
        (self.layout.size() - 1).div_ceil(ASKED).max(1) as u32
    }

    /// What was suspected of another rank, once all are seen to live, or none was told to be lost for as long as that takes.
    fn untraced(&self, watch: &mut Watch) -> Option<Error> {
        let suspicion = lock(&self.suspicion).clone()?;
        let heartbeat = self.options.heartbeat;
        // What is heard so much later was said after the call that failed.
        let since = *watch.suspected.get_or_insert(watch.answered) + heartbeat * (self.rounds() + 1);
        let standings = lock(&self.standings).clone();
        let mut others = (0..self.layout.size()).filter(|&rank| rank != self.layout.rank());
        let lives = |rank: usize| {
            let has_left = standings[rank].as_ref().is_some_and(|standing| standing.has_left);
            has_left || watch.heard[rank].is_some_and(|(_, at)| at >= since)
        };
        let is_over = suspicion.at + self.options.unresponsive + heartbeat * (self.rounds() + 2) <= self.now();
        (is_over || others.all(lives)).then_some(suspicion.error)
    }

    /// What differs between what this rank and another called, or were given.
    fn compare(&self) -> Option<Error> {
        let (history, standings) = (lock(&self.history), lock(&self.standings).clone());
        let known = |standing: Option<Standing>| standing.unwrap_or_default();
        let all: Vec<Standing> = standings.into_iter().map(known).collect();
        let differs = |(peer, standing): (usize, &Standing)| self.quarrel(&history, peer, standing);
        let quarrel = all.iter().enumerate().find_map(differs);
        quarrel.or_else(|| self.corrupt(&history, &all)).or_else(|| self.crossing(&all))
    }

    /// The messages under way that go alone, the oldest first.
    fn messages_alone(&self) -> Vec<Message> {
        let of = |flight: Arc<Flight>| {
            let peer = u32::try_from(*flight.peers.first()?).ok()?;
            Some(Message { peer, turn: *flight.turn.get()?, is_sent: flight.op == OpKind::Send })
        };
        self.under_way().into_iter().filter_map(of).take(TOLD).collect()
    }

    /// Two messages that wait for each other. What two ranks say to each other alone goes through one communicator in the order of their
    /// calls, where each message that one sends is the one that the other receives.
    fn crossing(&self, all: &[Standing]) -> Option<Error> {
        let rank = self.layout.rank();
        self.messages_alone().into_iter().find_map(|own| {
            let peer = usize::try_from(own.peer).ok()?;
            let meets = |theirs: &&Message| usize::try_from(theirs.peer) == Ok(rank) && theirs.turn == own.turn;
            let theirs = all.get(peer)?.messages.iter().find(meets).filter(|theirs| theirs.is_sent == own.is_sent)?;
            let is = |message: &Message| if message.is_sent { "that is sent" } else { "that is received" };
            let theirs = format!("{}; messages that cross begin together, in a batch", is(theirs));
            let (sequence, ours) = (own.turn, is(&own).to_owned());
            Some(Error::from(Desync {
                sequence,
                rank,
                peer,
                field: "a message",
                ours,
                theirs,
                moved: true,
                site: None,
            }))
        })
    }

    fn quarrel(&self, history: &History, peer: usize, standing: &Standing) -> Option<Error> {
        standing.prints.iter().find_map(|theirs| {
            let ours = history.prints.iter().map(|(print, _)| print).find(|ours| ours.sequence == theirs.sequence)?;
            self.differs(ours, peer, theirs, true)
        })
    }

    /// How another rank's operation of a number differs from this rank's.
    pub(super) fn differs(&self, ours: &Fingerprint, peer: usize, theirs: &Fingerprint, moved: bool) -> Option<Error> {
        let difference = ours.difference(theirs)?;
        let (rank, sequence) = (self.layout.rank(), theirs.sequence);
        let phalanx_core::Difference { field, ours, theirs } = difference;
        Some(Error::from(Desync { sequence, rank, peer, field, ours, theirs, moved, site: None }))
    }

    /// The ranks whose result is another than that of most, once all have said theirs.
    fn corrupt(&self, history: &History, all: &[Standing]) -> Option<Error> {
        let rank = self.layout.rank();
        history.digests.iter().find_map(|&(sequence, own)| {
            let of = |standing: &Standing| {
                standing.digests.iter().find(|(of, _)| *of == sequence).map(|(_, digest)| *digest)
            };
            let given: Vec<(usize, u64)> = (0..all.len())
                .filter_map(|peer| Some((peer, if peer == rank { own } else { of(&all[peer])? })))
                .collect();
            if given.len() == all.len() { votes::dissent(sequence, &given) } else { None }
        })
    }

    /// How many communicators could not be ended.
    pub(super) fn abandoned(&self) -> usize {
        self.abandoned.load(Ordering::Relaxed)
    }
}

/// What the store has answered; a refusal is an answer too, and says nothing.
pub(super) fn answer<T: Default>(asked: Result<T, StoreError>) -> Result<T, StoreError> {
    match asked {
        Err(StoreError::Refused { .. }) => Ok(T::default()),
        asked => asked,
    }
}

/// The ranks that one rank asks for in a round: so many after it, further on each round, until it begins again.
fn turn(own: usize, size: usize, round: u64, most: usize) -> Vec<usize> {
    let others = size - 1;
    let asked = others.min(most);
    let first = if asked < others { (round % others as u64) as usize * asked % others } else { 0 };
    (0..asked).map(|at| (own + 1 + (first + at) % others) % size).collect()
}

/// How many ranks are asked for each heartbeat.
const ASKED: usize = 16;
/// Where ranks say how they stand.
const STANDING: &str = "phalanx/standing/";
/// Where the first failure is told.
const FATE: &str = "phalanx/fate";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_is_asked_for_in_so_many_rounds() {
        for (size, own) in [(1, 0), (2, 1), (17, 16), (18, 3), (64, 0), (65, 64), (100, 7)] {
            let rounds = (size - 1_usize).div_ceil(ASKED).max(1) as u64;
            for begin in [0, 1, 5, 1_000] {
                let mut asked: Vec<usize> =
                    (begin..begin + rounds).flat_map(|round| turn(own, size, round, ASKED)).collect();
                asked.sort_unstable();
                asked.dedup();
                let others: Vec<usize> = (0..size).filter(|&rank| rank != own).collect();
                assert_eq!(asked, others, "rank {own} of {size} from round {begin} on");
            }
            assert_eq!(turn(own, size, 3, usize::MAX).len(), size - 1);
        }
    }
}
