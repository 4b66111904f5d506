//! The world: all ranks of a job in one epoch, as this rank sees them. How they exchange data is not decided here.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use phalanx_core::schedule::Profile;
use phalanx_core::store::Store;
use phalanx_core::{Error, Layout, Result};

use super::card::Card;
use super::member::members;
use super::{MeetError, Meeting, Member, WorldOptions};
use crate::secure::{JobKey, JobName};

/// All ranks of a job in one epoch, and this rank's place among them.
///
/// There is no global world: a process may be in several, or as several ranks in one.
///
/// Dropping a world leaves it. Where the world's store lives in this process ([`World::host`]), that waits until the others
/// have left too, at most 5 s, because the store ends with it; not while the thread panics. Anywhere else it takes at most
/// 1 s. Prefer [`World::leave`], which says what went wrong.
pub struct World {
    layout: Layout,
    members: Vec<Member>,
    epoch: u32,
    job: JobName,
    /// The keys of the world itself.
    own: Store,
    barriers: Mutex<HashMap<String, Arc<Meeting>>>,
    parting: Parting,
    key: Option<JobKey>,
    insecure: bool,
    profile: Option<Profile>,
    /// How many groups this rank has asked for.
    groups: AtomicU64,
    /// What serves the store, where this rank does. Ends after the others have left.
    server: Option<Box<dyn Any + Send + Sync>>,
}

/// What this rank owes the others when it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parting {
    /// To wait until they have left: their store is here.
    Stay,
    /// To say so, because somebody waits for it.
    Tell,
    /// Nothing: the store is a launcher's or a file, or all is said.
    Nothing,
}

impl World {
    /// Meets the other ranks on `store` and returns the world they make. Every rank calls this, with the same size, epoch
    /// and job.
    pub fn join(store: Store, options: &WorldOptions) -> Result<World> {
        World::enter(store, options, None)
    }

    /// Like [`World::join`] for the rank whose process serves `store` to the others: `server` lives until they have left.
    pub fn host(store: Store, options: &WorldOptions, server: impl Any + Send + Sync) -> Result<World> {
        World::enter(store, options, Some(Box::new(server)))
    }

    fn enter(store: Store, options: &WorldOptions, server: Option<Box<dyn Any + Send + Sync>>) -> Result<World> {
        let own = store.scope("phalanx").scope(options.job.as_str()).scope(&options.epoch.to_string());
        // Made first, so that a wrong rank or size is told before anybody is asked.
        let layout = Layout::one_host(options.rank, options.size)?;
        let cards = meet(&own, options, server.is_some())?;
        let parting = match (&server, cards.iter().any(|card| card.hosts_store)) {
            (Some(_), _) => Parting::Stay,
            (None, true) => Parting::Tell,
            (None, false) => Parting::Nothing,
        };
        let (members, counted): (Vec<Member>, Vec<usize>) = members(cards).into_iter().unzip();
        let nodes = members.iter().map(|member| u32::try_from(member.node()).unwrap_or(u32::MAX)).collect();
        let layout = Layout::new(layout.rank(), nodes)?;
        let (epoch, job, barriers) = (options.epoch, options.job.clone(), Mutex::default());
        let (key, insecure, groups) = (options.key.clone(), options.insecure, AtomicU64::new(0));
        let profile = options.profile;
        let world =
            World { layout, members, epoch, job, own, barriers, parting, key, insecure, profile, groups, server };
        world.look_around(options, counted[options.rank]);
        Ok(world)
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.layout.rank()
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// This rank's number on its host: what the launcher said, else counted in rank order.
    pub fn local_rank(&self) -> usize {
        self.members[self.rank()].local_rank()
    }

    /// How many ranks this rank's host has, itself included.
    pub fn local_size(&self) -> usize {
        self.members.iter().filter(|member| member.node() == self.node()).count()
    }

    /// The number of this rank's host.
    pub fn node(&self) -> usize {
        self.members[self.rank()].node()
    }

    /// How many hosts there are.
    pub fn nodes(&self) -> usize {
        // Hosts are numbered without gaps.
        self.members.iter().map(Member::node).max().map_or(0, |last| last + 1)
    }

    /// Which rank lives on which host.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// All ranks, in order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// How often the job was started anew before this world.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The job's name.
    pub fn job(&self) -> &JobName {
        &self.job
    }

    /// The world's store for whatever the program wants to share. Other jobs and other epochs have other keys.
    pub fn store(&self) -> Store {
        self.own.scope("user")
    }

    /// Waits until every rank has called this with `name`; by `timeout`, the ranks that did not are
    /// [`missing`](phalanx_core::Setup::missing). A name can be used again and again, by one thread of a rank at a time.
    pub fn barrier(&self, name: &str, timeout: Duration) -> Result<()> {
        let met = self.meeting(name).meet(&[], timeout);
        met.map(drop).map_err(|error| error.during(&format!("barrier \"{name}\"")))
    }

    /// Leaves the world. Where its store lives here, waits until all have left, and says who had not by `timeout`;
    /// then the store ends.
    pub fn leave(mut self, timeout: Duration) -> Result<()> {
        self.part(timeout)
    }

    /// By which limits its groups choose algorithms, where they are not told others.
    #[cfg(target_os = "linux")]
    pub(crate) fn profile(&self) -> Option<Profile> {
        self.profile
    }

    /// Keys of a group's own. Ranks that ask for groups in one order have the same for each.
    pub(crate) fn next_scope(&self) -> Store {
        let number = self.groups.fetch_add(1, Ordering::Relaxed);
        self.own.scope("group").scope(&number.to_string())
    }

    pub(crate) fn key(&self) -> Option<&JobKey> {
        self.key.as_ref()
    }

    pub(crate) fn is_insecure(&self) -> bool {
        self.insecure
    }

    fn part(&mut self, timeout: Duration) -> Result<()> {
        let parting = std::mem::replace(&mut self.parting, Parting::Nothing);
        let door = Meeting::new(self.own.clone(), "leave", self.rank(), self.size());
        let parted = match parting {
            Parting::Nothing => Ok(()),
            Parting::Tell => door.pass(&[], timeout),
            Parting::Stay => door.meet(&[], timeout).map(drop),
        };
        self.server = None;
        parted.map_err(|error| error.during("leaving the world"))
    }

    fn meeting(&self, name: &str) -> Arc<Meeting> {
        let mut barriers = self.barriers.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Meeting::new(self.own.scope("barrier"), name, self.rank(), self.size()));
        Arc::clone(barriers.entry(name.to_owned()).or_insert_with(new))
    }

    /// Logs what is odd about this world, and what it is.
    fn look_around(&self, options: &WorldOptions, counted: usize) {
        let (rank, local_size) = (self.rank(), self.local_size());
        if self.local_rank() != counted {
            log::warn!(
                "rank {rank}: the launcher's local rank is {}, in rank order it is {counted}",
                self.local_rank()
            );
        }
        if let Some(told) = options.local_size.filter(|told| *told != local_size) {
            log::warn!(
                "rank {rank}: the launcher says that {told} ranks are on this host, of this world {local_size} are"
            );
        }
        let mine = self.members[rank].version();
        if let Some(other) = self.members.iter().position(|member| member.version() != mine) {
            log::warn!("rank {rank} runs version {mine}, rank {other} runs {}", self.members[other].version());
        }
        log::info!("joined {self:?}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let bound = match self.parting {
            Parting::Stay if std::thread::panicking() => Duration::ZERO,
            Parting::Stay => LINGER,
            Parting::Tell | Parting::Nothing => TELL,
        };
        if let Err(error) = self.part(bound) {
            log::warn!("rank {}: {error}", self.rank());
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, size, nodes) = (self.rank(), self.size(), self.nodes());
        write!(f, "World(rank {rank} of {size} on {nodes} hosts, job {}, epoch {})", self.job.as_str(), self.epoch)
    }
}

/// All ranks' cards, in rank order.
fn meet(own: &Store, options: &WorldOptions, hosts_store: bool) -> Result<Vec<Card>> {
    let local_rank = options.local_rank.and_then(|rank| u32::try_from(rank).ok());
    let card = Card::of_this_process(local_rank, hosts_store).encode();
    let meeting = Meeting::new(own.clone(), "world", options.rank, options.size);
    let meeting = meeting.naming(Card::bearer).interval(options.interval);
    let began = options.began.unwrap_or_else(Instant::now);
    let met = meeting.meet_since(began, &card, options.timeout).inspect_err(|error| scatter(own, options.size, error));
    let cards = met.map_err(|error| error.during("joining the world"))?;
    let read = |(rank, card): (usize, &Vec<u8>)| {
        let odd =
            || Error::setup("joining the world", format!("rank {rank} has a card of another version of this library"));
        Card::decode(card).ok_or_else(odd)
    };
    cards.iter().enumerate().map(read).collect()
}

/// Waits for a moment until all who came have heard why they did not meet: the store may end with the first who goes.
fn scatter(own: &Store, size: usize, error: &MeetError) {
    let came = match error {
        MeetError::Missing { missing, .. } => size.saturating_sub(missing.len()),
        MeetError::Twice { .. } | MeetError::Sizes { .. } => size,
        _ => return,
    };
    if let Err(error) = own.with_timeout(SCATTER).barrier("scattered", came) {
        log::debug!("leaving a world that is none: {error}");
    }
}

/// How long a dropped world waits for the others where their store is here.
const LINGER: Duration = Duration::from_secs(5);
/// How long a dropped world takes to say that it leaves.
const TELL: Duration = Duration::from_secs(1);
/// How long a rank that could not join waits for others to hear why.
const SCATTER: Duration = Duration::from_millis(200);
