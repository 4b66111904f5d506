//! A world of ranks that reach each other over TCP, wherever they are: each calls for its own rank's group.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_core::schedule::Algorithm;
use phalanx_core::store::Store;
use phalanx_core::{Error, Group, GroupOptions, Layout, Result};
use phalanx_mem::Cells;

use crate::bell::Bell;
use crate::equipment::{Equipment, Links, Style};
use crate::fate::{self, Fate};
use crate::net::{Company, Guard, Lines, Manner, Peer, Protection, Standing, Stay, Terms, gather, link};
use crate::poller::Poller;
use crate::roll::{self, Roll};
use crate::secure::{JobKey, Suite};

/// One rank of a world whose ranks reach each other over TCP.
///
/// All ranks give the same size, options and settings, and a store with a scope that no other group has used. A rank that
/// dies, stops or is cut off is named by all others within seconds.
///
/// ```
/// # use std::time::Duration;
/// # use phalanx_comm::{Network, store::LocalStore};
/// # use phalanx_core::store::{Limits, Store};
/// // In each process with a rank of its own, over a store that all can reach; here there is one.
/// let store = Store::new(LocalStore::new(Limits::default())).scope("my-group");
/// let group = Network::new(0, 1, store).join(Duration::from_secs(10))?;
/// group.barrier()?;
/// # Ok::<(), phalanx_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Network {
    rank: usize,
    hosts: Vec<u32>,
    store: Store,
    style: Style,
    address: Option<IpAddr>,
    insecure: bool,
    guard: Guard,
}

impl Network {
    /// `rank` of `size`, which exchange addresses over `store`.
    pub fn new(rank: usize, size: usize, store: Store) -> Network {
        let guard = Guard { key: None, protection: Protection::default() };
        let (hosts, style) = (vec![0; size], Style { windows: false, ..Style::default() });
        Network { rank, hosts, store, style, address: None, insecure: false, guard }
    }

    /// Says that rank `i` lives on host `hosts[i]`, from which algorithms are chosen. All on one host unless said.
    #[must_use]
    pub fn hosts(mut self, hosts: Vec<u32>) -> Network {
        self.hosts = hosts;
        self
    }

    /// How the group behaves.
    #[must_use]
    pub fn options(mut self, options: GroupOptions) -> Network {
        self.style.options = options;
        self
    }

    /// The algorithm to use wherever it can play the operation.
    #[must_use]
    pub fn algorithm(mut self, wish: Algorithm) -> Network {
        self.style.wish = Some(wish);
        self
    }

    /// Whether frames carry a checksum; off by default. TCP has one that misses about one fault in 65,536, and encryption
    /// has a better one.
    #[must_use]
    pub fn checksum(mut self, checksum: bool) -> Network {
        self.style.checksum = checksum;
        self
    }

    /// The address to listen at and to be reached at. Without one the rank listens at all its interfaces where it has a
    /// key, else at loopback, and others try its addresses in an order: loopback on one host, then the same subnet.
    #[must_use]
    pub fn address(mut self, address: IpAddr) -> Network {
        self.address = Some(address);
        self
    }

    /// The key of the job, which every rank must prove.
    #[must_use]
    pub fn key(mut self, key: JobKey) -> Network {
        self.guard.key = Some(key);
        self
    }

    /// What the key does for the bytes that travel; encrypted unless said. It means nothing without a key.
    #[must_use]
    pub fn protection(mut self, protection: Protection) -> Network {
        self.guard.protection = protection;
        self
    }

    /// Whether others than this host may reach the rank although it has no key. Off by default: whoever can connect and
    /// read the store's traffic can take part.
    #[must_use]
    pub fn insecure(mut self, insecure: bool) -> Network {
        self.insecure = insecure;
        self
    }

    /// Meets the other ranks, at most this long, and returns this rank's group.
    ///
    /// Dropping the group leaves: what is queued ends first, and what was sent is waited for until the peers' systems have
    /// it, each at most five seconds.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::Error::Setup), which names the ranks that did not come or cannot be reached, and where.
    pub fn join(&self, timeout: Duration) -> Result<Group> {
        let now = Instant::now();
        let deadline = now.checked_add(timeout).unwrap_or(now + LONGEST);
        let layout = Layout::new(self.rank, self.hosts.clone())?;
        let (lines, suite) = gather(&self.store, &self.terms(), deadline)?;
        let (bell, keeper_bell) = (bell()?, bell()?);
        let fate = Arc::new(self.fate([Arc::clone(&bell), Arc::clone(&keeper_bell)])?);
        let standings: Vec<Arc<Standing>> = lines.iter().map(|_| Arc::default()).collect();
        let (links, post, peers) = equip(lines, suite, &standings, &bell)?;
        let company = Company {
            rank: self.rank,
            peers,
            fate: Arc::clone(&fate),
            bell: keeper_bell,
            rank_bell: Arc::clone(&bell),
        };
        let presence = Some(Box::new(Stay::begin(company)?) as _);
        Ok(self.style.group(layout, Equipment { links, windows: None, post, bell, fate, presence, heap: None }))
    }

    /// The fate of the group as this rank knows it, with the bells of the rank and of its keeper.
    fn fate(&self, bells: [Arc<Bell>; 2]) -> Result<Fate> {
        let size = self.hosts.len();
        let cells = |words| Cells::on_heap(words).map_err(|error| Error::setup("fate", error));
        let [_, keeper] = &bells;
        let herald = Arc::clone(keeper);
        let roll = Roll::new(cells(roll::words(size))?);
        Ok(Fate::new(cells(fate::words(size))?, bells.into(), roll).with_herald(herald))
    }

    fn terms(&self) -> Terms {
        let protection = if self.guard.key.is_some() { self.guard.protection as u8 } else { 0 };
        let (epoch, checksum) = (self.style.options.current_epoch(), self.style.checksum);
        let manner = Manner { epoch, checksum, protection };
        let (rank, size, address, insecure) = (self.rank, self.hosts.len(), self.address, self.insecure);
        Terms { rank, size, address, insecure, manner, guard: self.guard.clone() }
    }
}

fn bell() -> Result<Arc<Bell>> {
    let poller = Poller::new().map_err(|errno| Error::setup("waiting for sockets", errno))?;
    Ok(Arc::new(Bell::with_poller(poller).map_err(|error| Error::setup("bells", error))?))
}

/// The links of a rank for collectives and for messages, and who is at their other ends.
fn equip(
    lines: Lines,
    suite: Option<Suite>,
    standings: &[Arc<Standing>],
    bell: &Bell,
) -> Result<(Links, Links, Vec<Peer>)> {
    let (mut links, mut post, mut peers) = (vec![], vec![], vec![]);
    for ((rank, lines), standing) in lines.into_iter().enumerate().zip(standings) {
        let Some([collectives, messages, control]) = lines else {
            links.push(None);
            post.push(None);
            continue;
        };
        let data = [&collectives, &messages].map(|line| Arc::clone(&line.socket)).to_vec();
        links.push(Some(link(collectives, suite, standing, bell)?));
        post.push(Some(link(messages, suite, standing, bell)?));
        peers.push((rank, control, data, Arc::clone(standing)));
    }
    Ok((links, post, peers))
}

/// How long a meeting may last whose end no clock can tell.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
