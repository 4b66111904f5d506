//! Whether the peers' processes live: a thread that sleeps until one ends, and then seals the group's fate, unless the
//! rank had left. Now and then it looks whether its neighbour crashes, whose process may end long after that, or is stopped.
//!
//! A process can go on with another program, which knows nothing of the group. No descriptor of the process tells that, so the
//! connections of the meeting are kept: the system closes those with the program. Each rank has one to the first, which tells all: by the
//! fate of the group, and where that was sealed before, by a word that the others look at.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use phalanx_core::{Error, Peer, PeerReason, Result};
use phalanx_mem::Cells;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use super::meet::Peers;
use super::process::{Condition, condition, is_at_its_end, number_of};
use crate::fate::Fate;
use crate::host::Presence;

/// Who has left, as the ranks of a host tell each other.
#[derive(Debug)]
pub(crate) struct Departures {
    /// One word for each.
    words: Cells<AtomicU64>,
    /// The ranks that these words are of.
    ranks: Vec<usize>,
}

impl Departures {
    /// The departures of `ranks`, in these cells.
    pub(crate) fn new(words: Cells<AtomicU64>, ranks: Vec<usize>) -> Departures {
        Departures { words, ranks }
    }

    fn note(&self, rank: usize) {
        self.word(rank).inspect(|word| word.store(GONE, Ordering::Release));
    }

    fn has(&self, rank: usize) -> bool {
        self.said(rank) == GONE
    }

    /// Notes that a rank which stays has seen another end. Who leaves meanwhile has left.
    fn witness(&self, rank: usize) {
        if let Some(word) = self.word(rank) {
            let _ = word.compare_exchange(0, WITNESS, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Notes that the process of a rank goes on without it, which the system does not tell everybody.
    fn set_adrift(&self, rank: usize) {
        if let Some(word) = self.word(rank) {
            let adrift = |said| (said != GONE).then_some(ADRIFT);
            let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, adrift);
        }
    }

    fn said(&self, rank: usize) -> u64 {
        self.word(rank).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn word(&self, rank: usize) -> Option<&AtomicU64> {
        self.words.get(self.ranks.iter().position(|&known| known == rank)?)
    }
}

/// A rank's stay in its group. Dropping it says that the rank has left, and ends the watch.
#[derive(Debug)]
pub(crate) struct Stay {
    rank: usize,
    departures: Arc<Departures>,
    /// Written to when the watch shall end.
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    /// Closed last: the peers have been told before that this rank leaves.
    _ties: Peers,
}

struct Watch {
    rank: usize,
    departures: Arc<Departures>,
    stop: Arc<OwnedFd>,
    /// The peers that live, as far as is known, and their processes.
    peers: Peers,
    /// The connections to some of them, which end with their programs.
    ties: Peers,
    /// The number of the neighbour's process: of those that are here, each rank has the next one. None where it is not known.
    neighbour: Option<(usize, Option<i32>)>,
    /// How often a rank was seen stopped, one look after the other. Looks are counted and not the time, in which this process may have been
    /// stopped itself.
    seen_stopped: BTreeMap<usize, u32>,
    fate: Arc<Fate>,
}

/// What a wait came to.
enum News {
    /// Nothing, for as long as it was to last.
    None,
    /// These have ended, or their programs have; perhaps none that was still here.
    Ends(Peers),
    /// The watch is to end.
    Stop,
}

impl Stay {
    /// Watches the processes of `rank`'s peers from now on.
    pub(crate) fn begin(rank: usize, peers: Peers, departures: Departures, fate: Arc<Fate>) -> Result<Stay> {
        Stay::tied(rank, (peers, vec![]), departures, fate)
    }

    /// The same, and the ties: connections to some of the peers, which these keep too.
    pub(crate) fn tied(
        rank: usize,
        (peers, ties): (Peers, Peers),
        departures: Departures,
        fate: Arc<Fate>,
    ) -> Result<Stay> {
        let failed = |error: std::io::Error| Error::setup("watch over the local ranks", error);
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let (stop, departures) = (Arc::new(stop), Arc::new(departures));
        let (departs, stops) = (Arc::clone(&departures), Arc::clone(&stop));
        let watch = Watch {
            rank,
            departures: departs,
            stop: stops,
            peers,
            ties: ties.clone(),
            neighbour: None,
            seen_stopped: BTreeMap::new(),
            fate,
        };
        let thread = thread::Builder::new().name("phalanx-watch".to_owned()).spawn(|| watch.keep()).map_err(failed)?;
        Ok(Stay { rank, departures, stop, thread: Some(thread), _ties: ties })
    }
}

impl Presence for Stay {}

impl Drop for Stay {
    fn drop(&mut self) {
        self.departures.note(self.rank);
        let told = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        // The watch waits for nothing but its descriptors, so its end is near once it is told.
        if let (Ok(_), Some(thread)) = (told, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

impl Watch {
    fn keep(mut self) {
        while !self.peers.is_empty() {
            match self.wait(Some(ROUND)) {
                Ok(News::None) => self.look(),
                Ok(News::Ends(ended)) => self.lose(ended),
                Ok(News::Stop) => return,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    self.fate.seal(self.rank, Error::setup("watch over the local ranks", errno));
                    return;
                }
            }
        }
    }

    /// Tells of those among these that had not left, and of whoever was lost at the same time: the group has one failure, which names all.
    fn lose(&mut self, ended: Peers) {
        let [ended, adrift] = self.gather(ended);
        let how = match (ended.is_empty(), adrift.is_empty()) {
            (_, true) => ENDED,
            (true, false) => LET_GO,
            (false, false) => EITHER,
        };
        self.report(&[&*ended, &*adrift].concat(), PeerReason::Dead, how);
        // After that: those who look at it may know of fewer, and would be the first to tell.
        adrift.iter().for_each(|rank| self.departures.set_adrift(*rank));
    }

    /// The ranks of these, without those that had left, and with whoever ends at the same time: until all others have said that
    /// they live and saw an end too, but not for long. First those whose processes ended, then those whose go on without them.
    fn gather(&mut self, mut ended: Peers) -> [Vec<usize>; 2] {
        let departures = Arc::clone(&self.departures);
        ended.retain(|(rank, _)| !departures.has(*rank));
        if ended.is_empty() {
            return [vec![], vec![]];
        }
        departures.witness(self.rank);
        let until = Instant::now() + GATHERING;
        while self.peers.iter().any(|(rank, _)| departures.said(*rank) == 0) && Instant::now() < until {
            match self.wait(Some(GLANCE)) {
                Ok(News::Ends(more)) => ended.extend(more.into_iter().filter(|(rank, _)| !departures.has(*rank))),
                Ok(News::None) | Err(Errno::INTR) => {}
                Ok(News::Stop) | Err(_) => break,
            }
        }
        let (ended, adrift): (Peers, Peers) = ended.into_iter().partition(|(_, process)| is_at_its_end(process));
        [ended, adrift].map(|lost| lost.into_iter().map(|(rank, _)| rank).collect())
    }

    /// Looks whether another rank has seen a process go on without its rank; and whether the neighbour crashes or is stopped: that is told before
    /// its process has ended, if it ever does. After a disagreement, what befalls a rank is not the group's fate but each one's to know, so that
    /// each looks at all.
    fn look(&mut self) {
        let departures = &self.departures;
        let adrift = self.peers.extract_if(.., |(rank, _)| departures.said(*rank) == ADRIFT);
        let adrift: Vec<usize> = adrift.map(|(rank, _)| rank).collect();
        self.report(&adrift, PeerReason::Dead, LET_GO);
        let here = self.peers.iter().filter(|(rank, _)| !self.departures.has(*rank));
        let looked_at: Vec<(usize, Condition)> = match self.fate.quarrel() {
            Some(_) => here.map(|(rank, process)| (*rank, seen(number_of(process)))).collect(),
            None => {
                let Some((rank, process)) = here.min_by_key(|(rank, _)| (*rank < self.rank, *rank)) else { return };
                let known = self.neighbour.filter(|(known, _)| known == rank);
                let (rank, number) = known.unwrap_or_else(|| (*rank, number_of(process)));
                self.neighbour = Some((rank, number));
                vec![(rank, seen(number))]
            }
        };
        let is_in = |condition| looked_at.iter().filter(move |(_, seen)| *seen == condition).map(|(rank, _)| *rank);
        let stopped = is_in(Condition::Stopped);
        self.seen_stopped = stopped.map(|rank| (rank, self.seen_stopped.get(&rank).unwrap_or(&0) + 1)).collect();
        for rank in is_in(Condition::Crashes) {
            self.peers.retain(|(peer, _)| *peer != rank);
            self.report(&[rank], PeerReason::Dead, "it crashed, and its core file is being written");
        }
        if self.seen_stopped.values().any(|looks| *looks == STOPPED) {
            // The process may go on yet, and end: it stays among those that are watched.
            let stopped: Vec<usize> = self.stopped().collect();
            self.report(&stopped, PeerReason::Unresponsive, "stopped by a signal");
        }
    }

    /// The peers whose processes are stopped now: what befell one may have befallen several.
    fn stopped(&self) -> impl Iterator<Item = usize> {
        let is_stopped = |process: &Arc<OwnedFd>| seen(number_of(process)) == Condition::Stopped;
        let here = self.peers.iter().filter(|(rank, _)| !self.departures.has(*rank));
        here.filter(move |(_, process)| is_stopped(process)).map(|(rank, _)| *rank)
    }

    /// Sleeps until processes or programs end, or for so long, and takes those off the watch.
    fn wait(&mut self, limit: Option<Timespec>) -> Result<News, Errno> {
        let processes = self.peers.iter().map(|(_, process)| PollFd::new(process, PollFlags::IN));
        // The end of a connection is told unasked; what is said there is for others to hear.
        let ties = self.ties.iter().map(|(_, tie)| PollFd::new(tie, PollFlags::empty()));
        let stop = std::iter::once(PollFd::new(&self.stop, PollFlags::IN));
        let mut polled: Vec<PollFd<'_>> = stop.chain(processes).chain(ties).collect();
        if poll(&mut polled, limit.as_ref())? == 0 {
            return Ok(News::None);
        }
        let mut ready = polled.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>().into_iter();
        if ready.next() == Some(true) {
            return Ok(News::Stop);
        }
        let mut is_ready = |_: &mut (usize, Arc<OwnedFd>)| ready.next().unwrap_or_default();
        let mut ended: Peers = self.peers.extract_if(.., &mut is_ready).collect();
        let let_go: Vec<usize> = self.ties.extract_if(.., is_ready).map(|(rank, _)| rank).collect();
        let departures = &self.departures;
        ended.extend(self.peers.extract_if(.., |(rank, _)| let_go.contains(rank) && !departures.has(*rank)));
        self.ties.retain(|(rank, _)| ended.iter().all(|(other, _)| other != rank));
        Ok(News::Ends(ended))
    }

    fn report(&self, lost: &[usize], reason: PeerReason, detail: &str) {
        let Some((&rank, others)) = lost.split_first() else { return };
        let lost = Peer { rank, others: vec![], reason, detail: detail.to_owned() };
        let lost: Error = lost.and(others.iter().copied()).into();
        self.fate.seal(self.rank, lost.clone());
        self.fate.mourn(lost);
        // Whoever was first may have died before it told anybody.
        self.fate.tell();
    }
}

/// The condition of a process whose number may not be known. It lived a moment ago, so that the number is still its own.
fn seen(number: Option<i32>) -> Condition {
    number.map_or(Condition::Runs, condition)
}

/// How a rank ended that had not left.
const ENDED: &str = "its process ended";
/// The same where its process goes on without it.
const LET_GO: &str = "its process runs another program";
/// The same of ranks of both kinds.
const EITHER: &str = "its process ended or runs another program";
/// What a rank that has left leaves in its word, and one that lives and knows that another does not.
const GONE: u64 = 1;
const WITNESS: u64 = 2;
/// What is left there for one whose process goes on without it.
const ADRIFT: u64 = 3;
/// How often to look at the neighbour, and how often it must be seen stopped to be given up: 3 s, as where nothing is heard of a rank.
const ROUND: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
const STOPPED: u32 = 12;
/// How long to wait for whoever died at the same time as another, while somebody may have; and how often to look.
const GATHERING: Duration = Duration::from_millis(50);
const GLANCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
