//! A world of processes on one host, which share a segment: each calls for its own rank's group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_core::schedule::Algorithm;
use phalanx_core::{Group, GroupOptions, Layout, Result, fnv};
use rustix::process::{Resource, getrlimit};

use crate::equipment::{Equipment, Sight, Style};
use crate::lasting::Rejoin;
use crate::local::{self, Departures, Door, Joined, Neighbourhood, SegmentMap, Stay, Terms};
use crate::moment;
use crate::waits::Kin;

/// One rank of a world whose ranks are processes of one host.
///
/// All ranks give the same size, door, token, options and settings. The lowest rank hands the memory out; a rank that dies
/// is named by all others, as soon as the system knows.
///
/// ```
/// # use std::time::Duration;
/// # use phalanx_comm::{Door, Processes};
/// // In each process with a rank of its own; here there is one.
/// let (rank, size) = (0, 1);
/// let door = Door::named(format!("phalanx-example-{}", std::process::id()));
/// let group = Processes::new(rank, size, door, [7; 16]).join(Duration::from_secs(10))?;
/// group.barrier()?;
/// # Ok::<(), phalanx_core::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Processes {
    rank: usize,
    hosts: Vec<u32>,
    door: Door,
    token: [u8; 16],
    style: Style,
    heap_byte_len: usize,
    cross_memory: bool,
}

impl Processes {
    /// The most ranks that can share memory.
    pub const MOST: usize = local::MOST_RANKS;

    /// `rank` of `size`, at most 64, which meet at `door`. The token is the group's secret: who does not give it is sent
    /// away.
    pub fn new(rank: usize, size: usize, door: Door, token: [u8; 16]) -> Processes {
        Processes {
            rank,
            hosts: vec![0; size],
            door,
            token,
            style: Style::default(),
            heap_byte_len: heap_within(limit(), size),
            cross_memory: true,
        }
    }

    /// Pretends that rank `i` lives on host `hosts[i]`: algorithms choose as if it did, and windows are off.
    pub fn hosts(mut self, hosts: Vec<u32>) -> Processes {
        self.hosts = hosts;
        self
    }

    /// Among the groups of the same rank.
    pub(crate) fn kin(mut self, kin: Arc<Kin>) -> Processes {
        self.style.kin = Some(kin);
        self
    }

    /// How the group behaves.
    pub fn options(mut self, options: GroupOptions) -> Processes {
        self.style.options = options;
        self
    }

    /// The algorithm to use wherever it can play the operation.
    pub fn algorithm(mut self, wish: Algorithm) -> Processes {
        self.style.wish = Some(wish);
        self
    }

    /// Whether ranks may read each other's windows; on by default. Off, everything goes over links.
    pub fn windows(mut self, windows: bool) -> Processes {
        self.style.windows = windows;
        self
    }

    /// How many bytes a rank's [buffers](Group::buffer) can have in all. They take address space; memory only what is used of them, and that
    /// is kept. Unless set it is 64 GiB, or where the process may have only so many addresses or so long a file that two such groups would
    /// not fit, all ranks' together an eighth of that limit. Ranks of one group must have the same.
    pub fn heap(mut self, byte_len: usize) -> Processes {
        self.heap_byte_len = byte_len;
        self
    }

    /// Whether long parts of an operation's ordinary memory may be read by the peers through the system, where it lets them; on
    /// by default. Off, or where the system refuses it, they are copied into shared memory first.
    pub fn cross_memory(mut self, cross_memory: bool) -> Processes {
        self.cross_memory = cross_memory;
        self
    }

    /// Whether frames carry a checksum; off by default, because memory does not corrupt them.
    pub fn checksum(mut self, checksum: bool) -> Processes {
        self.style.checksum = checksum;
        self
    }

    /// Meets the other ranks, at most this long, and returns this rank's group.
    ///
    /// Dropping the group leaves: what is queued ends first, but a drop waits no more than five seconds for it.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::Error::Setup), which names the ranks that did not come, or what was refused.
    pub fn join(&self, timeout: Duration) -> Result<Group> {
        let deadline = moment::after(timeout);
        let layout = Layout::new(self.rank, self.hosts.clone())?;
        Ok(self.style.group(layout, self.equip(0, deadline)?, self.clone()))
    }

    fn equip(&self, round: u32, deadline: Instant) -> Result<Equipment> {
        let (rank, size, epoch) = (self.rank, self.hosts.len(), self.style.options.current_epoch());
        let group = fnv::hash64(self.token.into_iter().chain(self.style.settings()));
        let map = SegmentMap::new(size, group, epoch, self.heap_byte_len)?;
        let token = self.token_of(round);
        let terms = Terms {
            rank,
            members: self.style.options.members_of(size),
            epoch,
            token,
            map: map.hash(),
            byte_len: map.byte_len,
        };
        let met = match rank {
            0 => local::host(&self.door, &terms, local::create(&map)?, deadline)?,
            _ => local::attend(&self.door, &terms, None, deadline)?,
        };
        let (segment, peers, ties) = met.into_parts();
        let joined = local::join(segment, &map, rank, self.style.has_windows(&self.hosts))?;
        let Joined { links, windows, post, bell, fate, departures, reach, heap } = joined;
        let neighbours = self.cross_memory.then(|| Neighbourhood::new(rank, reach, &peers));
        let departures = Departures::new(departures, (0..size).collect());
        let stay = Stay::tied(rank, (peers, ties.kept()), departures, Arc::clone(&fate))?;
        ties.confirm(deadline)?;
        let neighbours = neighbours.map(|mut neighbours| {
            neighbours.look_around();
            Box::new(neighbours) as _
        });
        let windows = match neighbours {
            Some(neighbours) => windows.map(|windows| windows.with_neighbours(neighbours)),
            None => windows,
        };
        let presence = Some(Box::new(stay) as _);
        let windows = Sight::of_all(windows);
        Ok(Equipment { links, windows, post, bell, fate, presence, heap })
    }

    /// The secret of a round, so that nobody comes to another one.
    fn token_of(&self, round: u32) -> [u8; 16] {
        let mut token = self.token;
        token.iter_mut().zip(round.to_le_bytes()).for_each(|(byte, round)| *byte ^= round);
        token
    }
}

impl Rejoin for Processes {
    fn rejoin(&self, round: u32, deadline: Instant) -> Result<Equipment> {
        self.equip(round, deadline)
    }
}

/// The least of what this process may have of addresses, and of a file.
fn limit() -> Option<u64> {
    [Resource::As, Resource::Fsize].into_iter().filter_map(|resource| getrlimit(resource).current).min()
}

/// How many bytes the heap of each of so many ranks has: the ranks of a job have one limit, and so find the same.
fn heap_within(limit: Option<u64>, size: usize) -> usize {
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let heaps = HEAP_BYTE_LEN.saturating_mul(size);
    if limit / 2 > heaps { HEAP_BYTE_LEN } else { limit / SHARE / size.max(1) }
}

const HEAP_BYTE_LEN: usize = 64 << 30;
/// Which part of a limit the heaps of a group take: a process is in several groups, and has other memory.
const SHARE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heaps_take_a_part_of_what_a_process_may_have() {
        assert_eq!([2, 64].map(|size| heap_within(None, size)), [HEAP_BYTE_LEN; 2]);
        assert_eq!(heap_within(Some(1 << 40), 4), HEAP_BYTE_LEN);
        assert_eq!(heap_within(Some(1 << 40), 8), 16 << 30);
        assert_eq!(heap_within(Some(16 << 30), 2), 1 << 30);
        assert_eq!((heap_within(Some(0), 1), heap_within(None, 0)), (0, HEAP_BYTE_LEN));
    }
}
