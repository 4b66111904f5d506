//! The in-process world: ranks as threads of one process, over the same player as everywhere else.

use std::sync::Arc;
use std::thread;

use phalanx_core::link::{Link, Mesh};
use phalanx_core::mail::Mail;
use phalanx_core::schedule::{Algorithm, Ground};
use phalanx_core::{Error, Fingerprint, Group, GroupOptions, Layout, Result};
use phalanx_mem::{board, ring};

use crate::bell::Bell;
use crate::fate::Fate;
use crate::host::Host;
use crate::memory::{BoardWindows, MemoryLink};
use crate::post::Post;
use crate::stage::Stage;

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
pub struct Threads {
    hosts: Vec<u32>,
    options: GroupOptions,
    wish: Option<Algorithm>,
    windows: bool,
    checksum: bool,
}

impl Threads {
    /// A world of `size` ranks on one host.
    pub fn new(size: usize) -> Threads {
        let hosts = vec![0; size];
        Threads { hosts, options: GroupOptions::default(), wish: None, windows: true, checksum: false }
    }

    /// Pretends that rank `i` lives on host `hosts[i]`: algorithms choose as if it did, and windows are off.
    pub fn hosts(mut self, hosts: Vec<u32>) -> Threads {
        self.hosts = hosts;
        self
    }

    /// How the group behaves.
    pub fn options(mut self, options: GroupOptions) -> Threads {
        self.options = options;
        self
    }

    /// The algorithm to use wherever it can play the operation.
    pub fn algorithm(mut self, wish: Algorithm) -> Threads {
        self.wish = Some(wish);
        self
    }

    /// Whether ranks may read each other's windows; on by default. Off, everything goes over links.
    pub fn windows(mut self, windows: bool) -> Threads {
        self.windows = windows;
        self
    }

    /// Whether frames carry a checksum; off by default, because memory does not corrupt them.
    pub fn checksum(mut self, checksum: bool) -> Threads {
        self.checksum = checksum;
        self
    }

    /// Runs `rank` on a thread for each rank and returns what each returned, in rank order.
    ///
    /// # Panics
    ///
    /// When a rank panics, after all have ended: its peers get an error that names it.
    pub fn run<R: Send>(&self, rank: impl Fn(Group) -> R + Sync) -> Result<Vec<R>> {
        let groups = self.groups()?;
        let rank = &rank;
        thread::scope(|scope| {
            let ranks: Vec<_> = groups.into_iter().map(|group| scope.spawn(move || rank(group))).collect();
            let ends: Vec<_> = ranks.into_iter().map(|rank| rank.join()).collect();
            ends.into_iter().map(|end| end.map_or_else(|panic| std::panic::resume_unwind(panic), Ok)).collect()
        })
    }

    /// One group a rank, all of one world, to be handed to threads of the caller's own.
    pub fn groups(&self) -> Result<Vec<Group>> {
        let bells: Vec<Arc<Bell>> = self.hosts.iter().map(|_| Arc::default()).collect();
        let fate = Arc::new(Fate::new(bells.clone()));
        let mut meshes = self.meshes(&bells)?;
        let mut posts = links(&bells)?;
        let group = |rank: usize| {
            let layout = Layout::new(rank, self.hosts.clone())?;
            let mesh = Mesh::new(std::mem::take(&mut posts[rank])).with_checksum(self.checksum);
            let post = Post::new(Mail::new(rank, layout.size(), self.options.current_epoch()), mesh);
            let mesh = std::mem::replace(&mut meshes[rank], Mesh::new(vec![]));
            let stage = Stage::new(mesh, layout.clone(), self.ground(), self.wish);
            let host = Host::new(rank, stage, post, Arc::clone(&bells[rank]), Arc::clone(&fate));
            Ok(Group::new(layout, Arc::new(host), self.options.clone()))
        };
        (0..self.hosts.len()).map(group).collect()
    }

    fn meshes(&self, bells: &[Arc<Bell>]) -> Result<Vec<Mesh>> {
        let meshes = links(bells)?.into_iter().map(|links| Mesh::new(links).with_checksum(self.checksum));
        if !self.has_windows() {
            return Ok(meshes.collect());
        }
        let seats = board::seats(bells.len(), SLOT_BYTE_LEN + Fingerprint::BYTE_LEN)
            .map_err(|error| Error::setup("windows", error))?;
        let windows = |seat| Box::new(BoardWindows { seat, bells: bells.to_vec() });
        Ok(meshes.zip(seats).map(|(mesh, seat)| mesh.with_windows(windows(seat))).collect())
    }

    fn has_windows(&self) -> bool {
        self.windows && !self.hosts.is_empty() && self.hosts.iter().all(|host| *host == self.hosts[0])
    }

    fn ground(&self) -> Ground {
        Ground { slot_byte_len: if self.has_windows() { SLOT_BYTE_LEN } else { 0 }, ..Ground::default() }
    }
}

/// The links of one rank, by peer.
type Links = Vec<Option<Box<dyn Link>>>;

/// The links between all ranks: `links[a][b]` is rank `a`'s to rank `b`.
fn links(bells: &[Arc<Bell>]) -> Result<Vec<Links>> {
    let size = bells.len();
    let mut links: Vec<Links> = (0..size).map(|_| (0..size).map(|_| None).collect()).collect();
    let pairs = (0..size).flat_map(|a| (0..a).map(move |b| [a, b]));
    for [a, b] in pairs {
        let [to_a, to_b] = pair([&bells[a], &bells[b]])?;
        links[b][a] = Some(Box::new(to_a));
        links[a][b] = Some(Box::new(to_b));
    }
    Ok(links)
}

/// The two ends of one link: the one that reaches the first bell's rank, and the one that reaches the second's.
fn pair([first, second]: [&Arc<Bell>; 2]) -> Result<[MemoryLink; 2]> {
    let pipe = || ring::pair(RING_BYTE_LEN).map_err(|error| Error::setup("link", error));
    let ((out_first, into_second), (out_second, into_first)) = (pipe()?, pipe()?);
    let link = |out, into, peer: &Arc<Bell>| MemoryLink { out, into, peer: Arc::clone(peer) };
    Ok([link(out_second, into_second, first), link(out_first, into_first, second)])
}

/// Small enough that what is published is still in the second-level cache when the peers read it.
const SLOT_BYTE_LEN: usize = 64 << 10;
const RING_BYTE_LEN: usize = 64 << 10;
