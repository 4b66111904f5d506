//! A world of ranks wherever they are, which share memory with those of their host and reach the others over TCP: each calls
//! for its own rank's group.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_core::schedule::Algorithm;
use phalanx_core::store::Store;
use phalanx_core::{Error, Group, GroupOptions, Layout, Result, fnv};
use phalanx_mem::Cells;

use crate::bell::Bell;
use crate::equipment::{Equipment, Links, Style};
use crate::fate::{self, Fate};
use crate::host::Presence;
use crate::lasting::Rejoin;
use crate::local;
use crate::moment;
use crate::neighbours::{Agreement, Request, share};
use crate::net::{Company, Gathered, Guard, Lines, Manner, Peer, Protection, Standing, Stay, Terms, gather, link};
use crate::poller::Poller;
use crate::roll::{self, Roll};
use crate::secure::{JobKey, Suite};
use crate::waits::Kin;

/// One rank of a world whose ranks reach each other over TCP, except that those of one host exchange their data in memory that
/// they share, where the system lets them.
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
#[must_use]
pub struct Network {
    rank: usize,
    size: usize,
    /// The host of each rank, where that was said.
    hosts: Option<Vec<u32>>,
    shared_memory: bool,
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
        let (hosts, style) = (None, Style::default());
        Network { rank, size, hosts, shared_memory: true, store, style, address: None, insecure: false, guard }
    }

    /// Says that rank `i` lives on host `hosts[i]`, from which algorithms are chosen; found out unless said. Ranks of different
    /// hosts in this count do not share memory, even if they could.
    pub fn hosts(mut self, hosts: Vec<u32>) -> Network {
        self.hosts = Some(hosts);
        self
    }

    /// Whether ranks of one host exchange data in memory that they share; on by default. Off, everything goes over TCP, as it
    /// does where the system does not let them pass memory to each other.
    pub fn shared_memory(mut self, shared_memory: bool) -> Network {
        self.shared_memory = shared_memory;
        self
    }

    /// Whether ranks that share memory may read each other's windows; on by default. Off, they have links only.
    pub fn windows(mut self, windows: bool) -> Network {
        self.style.windows = windows;
        self
    }

    /// Among the groups of the same rank.
    pub(crate) fn kin(mut self, kin: Arc<Kin>) -> Network {
        self.style.kin = Some(kin);
        self
    }

    /// How the group behaves.
    pub fn options(mut self, options: GroupOptions) -> Network {
        self.style.options = options;
        self
    }

    /// The algorithm to use wherever it can play the operation.
    pub fn algorithm(mut self, wish: Algorithm) -> Network {
        self.style.wish = Some(wish);
        self
    }

    /// Whether frames carry a checksum; off by default. TCP has one that misses about one fault in 65,536, and encryption
    /// has a better one.
    pub fn checksum(mut self, checksum: bool) -> Network {
        self.style.checksum = checksum;
        self
    }

    /// The address to listen at and to be reached at. Without one the rank listens at all its interfaces where it has a
    /// key, else at loopback, and others try its addresses in an order: loopback on one host, then the same subnet.
    pub fn address(mut self, address: IpAddr) -> Network {
        self.address = Some(address);
        self
    }

    /// The key of the job, which every rank must prove.
    pub fn key(mut self, key: JobKey) -> Network {
        self.guard.key = Some(key);
        self
    }

    /// What the key does for the bytes that travel; encrypted unless said. It means nothing without a key.
    pub fn protection(mut self, protection: Protection) -> Network {
        self.guard.protection = protection;
        self
    }

    /// Whether others than this host may reach the rank although it has no key. Off by default: whoever can connect and
    /// read the store's traffic can take part.
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
        let deadline = moment::after(timeout);
        let (layout, equipment) = self.equip(&self.store, deadline)?;
        Ok(self.style.group(layout, equipment, self.clone()))
    }

    fn equip(&self, store: &Store, deadline: Instant) -> Result<(Layout, Equipment)> {
        let told = self.hosts.clone().unwrap_or_else(|| vec![0; self.size]);
        let layout = Layout::new(self.rank, told)?;
        let Gathered { lines, places, suite } = gather(store, &self.terms(), deadline)?;
        let layout = if self.hosts.is_some() { layout } else { Layout::new(self.rank, hosts_of(&places))? };
        let agreement = self.agree(store, &layout, &places, deadline)?;
        let bells = [agreement.bell().map_or_else(bell, Ok)?, bell()?];
        let fate = Arc::new(self.fate(&bells)?);
        let standings: Vec<Arc<Standing>> = lines.iter().map(|_| Arc::default()).collect();
        let ways = agreement.ways(&standings);
        let [bell, keeper_bell] = bells;
        let (links, post, peers) = equip(lines, suite, [ways.links, ways.post], (&standings, &bell))?;
        let (rank, rank_bell) = (self.rank, Arc::clone(&bell));
        let watch = |(peers, departures)| local::Stay::begin(rank, peers, departures, Arc::clone(&fate));
        let in_memory = ways.watched.map(watch).transpose()?;
        let company = Company { rank, peers, fate: Arc::clone(&fate), bell: keeper_bell, rank_bell };
        let presence = Some(Box::new(Stays { _connected: Stay::begin(company)?, _in_memory: in_memory }) as _);
        let windows = ways.windows;
        Ok((layout, Equipment { links, windows, post, bell, fate, presence, heap: None }))
    }

    /// Agrees with all ranks on who shares memory, where they are to.
    fn agree(&self, store: &Store, layout: &Layout, places: &[String], deadline: Instant) -> Result<Agreement> {
        let (epoch, windows) = (self.style.options.current_epoch(), self.style.windows);
        let members = &*self.style.options.members_of(self.size);
        let request = Request { store, layout, members, places, epoch, windows, patience: NEIGHBOURS_WITHIN };
        if self.shared_memory { share(&request, deadline) } else { Ok(Agreement::default()) }
    }

    /// The fate of the group as this rank knows it, with the bells of the rank and of its keeper.
    fn fate(&self, bells: &[Arc<Bell>; 2]) -> Result<Fate> {
        let size = self.size;
        let cells = |words| Cells::on_heap(words).map_err(|error| Error::setup("fate", error));
        let [_, keeper] = bells;
        let herald = Arc::clone(keeper);
        let roll = Roll::new(cells(roll::words(size))?);
        Ok(Fate::new(cells(fate::words(size))?, bells.to_vec(), roll).with_herald(herald))
    }

    fn terms(&self) -> Terms {
        let protection = if self.guard.key.is_some() { self.guard.protection as u8 } else { 0 };
        let (epoch, checksum) = (self.style.options.current_epoch(), self.style.checksum);
        let (shared_memory, profile) = (self.shared_memory, fnv::hash64(self.style.limits()));
        let (windows, algorithm) = (self.style.windows, self.style.wish);
        let manner = Manner { epoch, checksum, shared_memory, windows, algorithm, profile, protection };
        let (rank, address, insecure) = (self.rank, self.address, self.insecure);
        let members = self.style.options.members_of(self.size);
        Terms { rank, members, address, insecure, manner, guard: self.guard.clone() }
    }
}

impl Rejoin for Network {
    fn rejoin(&self, round: u32, deadline: Instant) -> Result<Equipment> {
        let store = self.store.scope("round").scope(&round.to_string());
        self.equip(&store, deadline).map(|(_, equipment)| equipment)
    }
}

/// A rank's stay in its group: with all ranks, and with those that it shares memory with. It leaves them in this order.
#[derive(Debug)]
struct Stays {
    _connected: Stay,
    _in_memory: Option<local::Stay>,
}

impl Presence for Stays {}

/// Hosts by number, from where the ranks really are.
fn hosts_of(places: &[String]) -> Vec<u32> {
    let first = |place| places.iter().position(|other| other == place).unwrap_or_default();
    places.iter().map(|place| first(place) as u32).collect()
}

fn bell() -> Result<Arc<Bell>> {
    let poller = Poller::new().map_err(|errno| Error::setup("waiting for sockets", errno))?;
    Ok(Arc::new(Bell::with_poller(poller).map_err(|error| Error::setup("bells", error))?))
}

/// The links of a rank for collectives and for messages, and who is at their other ends. Those to `neighbours` are there
/// already, and their connections for data end here.
fn equip(
    lines: Lines,
    suite: Option<Suite>,
    neighbours: [Links; 2],
    (standings, bell): (&[Arc<Standing>], &Bell),
) -> Result<(Links, Links, Vec<Peer>)> {
    let ([mut links, mut post], mut peers) = (neighbours, vec![]);
    for ((rank, lines), standing) in lines.into_iter().enumerate().zip(standings) {
        let Some([collectives, messages, control]) = lines else { continue };
        let mut data = vec![];
        if links[rank].is_none() {
            data = [&collectives, &messages].map(|line| Arc::clone(&line.socket)).to_vec();
            links[rank] = Some(link(collectives, suite, standing, bell)?);
            post[rank] = Some(link(messages, suite, standing, bell)?);
        }
        peers.push((rank, control, data, Arc::clone(standing)));
    }
    Ok((links, post, peers))
}

/// How long a fault on a host may hold its ranks up before they do without shared memory.
const NEIGHBOURS_WITHIN: Duration = Duration::from_secs(5);
