//! The in-process world: ranks as threads of one process, over the same player as everywhere else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use phalanx_core::schedule::Algorithm;
use phalanx_core::{Error, Group, GroupOptions, Layout, Result};
use phalanx_mem::{board, ring};

use crate::bell::Bell;
use crate::equipment::{Equipment, Links, Sight, Style};
use crate::fate::Fate;
use crate::lasting::Rejoin;
use crate::memory::{BoardWindows, MemoryLink};
use crate::slots;

/// A world of threads, for tests, examples and programs that share one process.
///
/// ```
/// # use phalanx_comm::Threads;
/// # use phalanx_core::ReduceOp;
/// let sums = Threads::new(3).run(|group| {
///     let mut data = [group.rank() as f32; 4];
///     group.all_reduce(&mut data, ReduceOp::Sum).map(|()| data[0])
/// })?;
/// assert!(sums.into_iter().all(|sum| sum == Ok(3.0)));
/// # Ok::<(), phalanx_core::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Threads {
    hosts: Vec<u32>,
    style: Style,
}

impl Threads {
    /// A world of `size` ranks on one host, at most 1024: each is linked with every other.
    pub fn new(size: usize) -> Threads {
        // One too many is refused like any number beyond, which a list may be too long for.
        Threads { hosts: vec![0; size.min(MOST_RANKS + 1)], style: Style::default() }
    }

    /// Pretends that rank `i` lives on host `hosts[i]`: algorithms choose as if it did, and windows are off.
    pub fn hosts(mut self, hosts: Vec<u32>) -> Threads {
        self.hosts = hosts;
        self
    }

    /// How the group behaves.
    pub fn options(mut self, options: GroupOptions) -> Threads {
        self.style.options = options;
        self
    }

    /// The algorithm to use wherever it can play the operation.
    pub fn algorithm(mut self, wish: Algorithm) -> Threads {
        self.style.wish = Some(wish);
        self
    }

    /// Whether ranks may read each other's windows; on by default. Off, everything goes over links.
    pub fn windows(mut self, windows: bool) -> Threads {
        self.style.windows = windows;
        self
    }

    /// Whether frames carry a checksum; off by default, because memory does not corrupt them.
    pub fn checksum(mut self, checksum: bool) -> Threads {
        self.style.checksum = checksum;
        self
    }

    /// Runs `rank` on a thread for each rank and returns what each returned, in rank order.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup), where the ranks are more than 1024 or the system has no means for so many. Those that
    /// were started before that was seen have ended then: their peers are gone.
    ///
    /// # Panics
    ///
    /// When a rank panics, after all have ended: its peers get an error that names it.
    pub fn run<R: Send>(&self, rank: impl Fn(Group) -> R + Sync) -> Result<Vec<R>> {
        self.run_on(|_| thread::Builder::new(), rank)
    }

    /// The same, each rank on a thread that is made as `builder` says for its number.
    fn run_on<R: Send>(
        &self,
        builder: impl Fn(usize) -> thread::Builder,
        rank: impl Fn(Group) -> R + Sync,
    ) -> Result<Vec<R>> {
        let groups = self.groups()?;
        let rank = &rank;
        thread::scope(|scope| {
            let mut ranks = vec![];
            // The first that cannot be started has the groups of the rest dropped: nobody waits for them.
            let started = groups.into_iter().enumerate().try_for_each(|(number, group)| {
                let thread = builder(number).spawn_scoped(scope, move || rank(group));
                let thread = thread.map_err(|error| {
                    Error::setup("threads of a world", format!("no thread for rank {number}: {error}"))
                });
                thread.map(|thread| ranks.push(thread))
            });
            let ends: Vec<_> = ranks.into_iter().map(|rank| rank.join()).collect();
            started?;
            ends.into_iter().map(|end| end.map_or_else(|panic| std::panic::resume_unwind(panic), Ok)).collect()
        })
    }

    /// One group a rank, all of one world, to be handed to threads of the caller's own.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup), where the ranks are more than 1024 or there is no memory for so many.
    pub fn groups(&self) -> Result<Vec<Group>> {
        let hall = Arc::new(Hall { threads: self.clone(), rounds: Mutex::default() });
        let ranks = self.equip()?.into_iter().enumerate();
        ranks
            .map(|(rank, equipment)| {
                let layout = Layout::new(rank, self.hosts.clone())?;
                Ok(self.style.group(layout, equipment, Chair { hall: Arc::clone(&hall), rank }))
            })
            .collect()
    }

    /// What each rank needs.
    fn equip(&self) -> Result<Vec<Equipment>> {
        let size = self.hosts.len();
        if size > MOST_RANKS {
            return Err(Error::setup("threads of a world", format!("more than {MOST_RANKS} ranks in one process")));
        }
        let bells = (0..size).map(|_| Bell::new().map(Arc::new)).collect::<Result<Vec<_>, _>>();
        let bells = bells.map_err(|error| Error::setup("bells", error))?;
        let fate = Fate::of_threads(bells.clone()).map_err(|error| Error::setup("fate", error))?;
        let fate = Arc::new(fate);
        let (meshes, posts) = (links(&bells)?, links(&bells)?);
        let mut windows = self.seats(&bells)?.into_iter();
        let ranks = meshes.into_iter().zip(posts).enumerate();
        let equip = |(rank, (links, post))| {
            let (bell, fate, windows) = (Arc::clone(&bells[rank]), Arc::clone(&fate), Sight::of_all(windows.next()));
            Equipment { links, windows, post, bell, fate, presence: None, heap: None }
        };
        Ok(ranks.map(equip).collect())
    }

    fn seats(&self, bells: &[Arc<Bell>]) -> Result<Vec<BoardWindows>> {
        if !self.style.has_windows(&self.hosts) {
            return Ok(vec![]);
        }
        let seats =
            board::seats(bells.len(), slots::of_offers(bells.len())).map_err(|error| Error::setup("windows", error))?;
        Ok(seats.into_iter().map(|seat| BoardWindows::new(seat, bells.to_vec())).collect())
    }
}

/// Where threads of one world find each other again: the first of a round makes everything for all of it.
struct Hall {
    threads: Threads,
    rounds: Mutex<HashMap<u32, Vec<Option<Equipment>>>>,
}

/// One rank's place in the hall.
struct Chair {
    hall: Arc<Hall>,
    rank: usize,
}

impl Rejoin for Chair {
    fn rejoin(&self, round: u32, _: Instant) -> Result<Equipment> {
        let mut rounds = self.hall.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        let equipped = match rounds.remove(&round) {
            Some(equipped) => Ok(equipped),
            None => self.hall.threads.equip().map(|all| all.into_iter().map(Some).collect()),
        };
        let mut equipped: Vec<_> = equipped?;
        let own = equipped.get_mut(self.rank).and_then(Option::take);
        if equipped.iter().any(Option::is_some) {
            rounds.insert(round, equipped);
        }
        own.ok_or_else(|| Error::setup("threads of a world", format!("rank {} came twice", self.rank)))
    }
}

/// The links between all ranks: `links[a][b]` is rank `a`'s to rank `b`.
fn links(bells: &[Arc<Bell>]) -> Result<Vec<Links>> {
    let size = bells.len();
    let mut links: Vec<Links> = (0..size).map(|_| (0..size).map(|_| None).collect()).collect();
    let pairs = (0..size).flat_map(|a| (0..a).map(move |b| [a, b]));
    for [a, b] in pairs {
        let [to_a, to_b] = pair([&bells[a], &bells[b]], slots::ring_byte_len(size))?;
        links[b][a] = Some(Box::new(to_a));
        links[a][b] = Some(Box::new(to_b));
    }
    Ok(links)
}

/// The two ends of one link: the one that reaches the first bell's rank, and the one that reaches the second's.
fn pair([first, second]: [&Arc<Bell>; 2], ring_byte_len: usize) -> Result<[MemoryLink; 2]> {
    let pipe = || ring::pair(ring_byte_len).map_err(|error| Error::setup("link", error));
    let ((out_first, into_second), (out_second, into_first)) = (pipe()?, pipe()?);
    let link = |out, into, peer: &Arc<Bell>| MemoryLink::new(out, into, Arc::clone(peer));
    Ok([link(out_second, into_second, first), link(out_first, into_first, second)])
}

/// Links are made for all pairs at once. Those of so many ranks take half a terabyte of addresses.
const MOST_RANKS: usize = 1024;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use phalanx_core::ErrorKind;

    use super::*;

    #[test]
    fn more_ranks_than_have_room_are_refused() {
        for threads in [Threads::new(1_000_000_000_000), Threads::new(2).hosts(vec![0; MOST_RANKS + 1])] {
            let error = threads.groups().unwrap_err().to_string();
            assert_eq!(error, "threads of a world: more than 1024 ranks in one process");
        }
    }

    #[test]
    fn a_thread_that_cannot_be_made_is_an_error_and_the_ranks_before_it_end() {
        // No address space has room for such a stack.
        let builder = |rank: usize| match rank {
            2 => thread::Builder::new().stack_size(usize::MAX / 4),
            _ => thread::Builder::new(),
        };
        let failed = AtomicUsize::new(0);
        let ended = Threads::new(4).run_on(builder, |group| {
            failed.fetch_add(usize::from(group.barrier().is_err()), Ordering::Relaxed);
        });
        let error = ended.expect_err("no thread");
        assert_eq!(error.kind(), ErrorKind::Setup);
        assert!(error.to_string().starts_with("threads of a world: no thread for rank 2: "), "{error}");
        assert_eq!(failed.into_inner(), 2, "both that were started wait for nobody");
    }

    #[test]
    fn a_message_that_nothing_stands_before_has_moved_once_it_is_submitted() {
        let [sender, receiver]: [Group; 2] = Threads::new(2).groups().expect("a world").try_into().expect("two");
        let sent = sender.send_async(vec![7_u8; 1000], 1, 3).expect("it is begun");
        assert!(sent.is_done());
        let came = receiver.recv_async(vec![0_u8; 1000], 0, 3).expect("it is begun");
        assert!(came.is_done());
        let came = came.wait().expect("it came");
        assert!(came.data == [7; 1000] && came.peer == 0);
        let first = receiver.recv_async(vec![0_u8], 0, 3).expect("it is begun");
        let second = receiver.recv_async(vec![0_u8], 0, 3).expect("it is begun");
        assert!(!first.is_done() && !second.is_done());
        [1_u8, 2].into_iter().for_each(|byte| sender.send(&[byte], 1, 3).expect("it goes"));
        let came = [first, second].map(|came| came.wait().expect("it came").data);
        assert_eq!(came, [[1], [2]]);
        assert_eq!(sent.wait().expect("it went").data, [7; 1000]);
    }
}
