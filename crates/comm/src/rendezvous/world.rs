//! The world: all ranks of a job in one epoch, as this rank sees them. How they exchange data is not decided here.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_core::schedule::Profile;
use phalanx_core::store::Store;
use phalanx_core::{Alarm, Error, Layout, Result};

use super::barriers::Barriers;
use super::card::Card;
use super::member::members;
use super::{MeetError, Meeting, Member, WorldOptions};
use crate::Backends;
use crate::groups::{Ledger, Place, Registry};
use crate::secure::{JobKey, JobName};
use crate::waits::Kin;

/// All ranks of a job in one epoch, and this rank's place among them.
///
/// There is no global world: a process may be in several, or as several ranks in one.
///
/// ```
/// # use std::time::Duration;
/// # use phalanx_comm::rendezvous::{World, WorldOptions};
/// # let store = phalanx_core::store::Store::new(phalanx_comm::store::LocalStore::default());
/// let world = World::join(store, &WorldOptions::new(0, 1))?; // `phalanx::init()?` in a program of many processes
/// let group = world.group()?;
/// world.store().set(&format!("host of {}", world.rank()), world.members()[world.rank()].host_name())?;
/// world.barrier("told", Duration::from_secs(60))?;
/// group.barrier()?;
/// world.leave(Duration::from_secs(10))?;
/// # Ok::<(), phalanx_core::Error>(())
/// ```
///
/// Dropping a world leaves it. Where the world's store lives in this process ([`World::host`]), that waits until the others
/// have left too, at most 5 s, because the store ends with it; not while the thread panics. Anywhere else it takes at most
/// 1 s. Prefer [`World::leave`], which says what went wrong.
pub struct World {
    layout: Layout,
    members: Vec<Member>,
    epoch: u32,
    job: JobName,
    /// The keys of the job in this epoch, and of the world itself.
    base: Store,
    own: Store,
    /// How often its members have changed, and how many ranks were in the world before.
    change: u32,
    survivors: usize,
    barriers: Barriers,
    parting: Parting,
    key: Option<JobKey>,
    insecure: bool,
    profile: Option<Profile>,
    alarm: Option<Arc<dyn Alarm>>,
    backends: Backends,
    ledger: Ledger,
    registry: Registry,
    kin: Arc<Kin>,
    /// What serves the store, where this rank does. Ends after the others have left.
    server: Option<Box<dyn Any + Send + Sync>>,
    /// What ends with this world, whatever becomes of its members.
    companions: Vec<Box<dyn Any + Send + Sync>>,
}

/// The keys of a service beside the worlds of a job in one epoch, on the store that those share, for whoever is no member.
pub fn service_keys(store: &Store, job: &JobName, epoch: u32, service: &str) -> Store {
    keys_of(store, job, epoch).scope(SERVICE).scope(service)
}

fn keys_of(store: &Store, job: &JobName, epoch: u32) -> Store {
    store.scope("phalanx").scope(job.as_str()).scope(&epoch.to_string())
}

const SERVICE: &str = "service";

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

/// Where a world comes from.
pub(super) struct Origin {
    /// The keys of the world itself.
    pub(super) own: Store,
    pub(super) change: u32,
    pub(super) survivors: usize,
}

impl Parting {
    /// What a rank owes those who came with these cards.
    fn after(cards: &[Card], hosts_store: bool) -> Parting {
        match (hosts_store, cards.iter().any(|card| card.hosts_store)) {
            (true, _) => Parting::Stay,
            (false, true) => Parting::Tell,
            (false, false) => Parting::Nothing,
        }
    }
}

impl World {
    /// Meets the other ranks on `store` and returns the world they make. Every rank calls this, with the same size, epoch
    /// and job.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup), with the ranks that did not come where that is the reason. Else it is a rank that is not below
    /// the size, one that came twice, ranks that differ in the size or the version, or the store.
    pub fn join(store: Store, options: &WorldOptions) -> Result<World> {
        World::enter(store, options, None)
    }

    /// Like [`World::join`] for the rank whose process serves `store` to the others: `server` lives until they have left.
    ///
    /// # Errors
    ///
    /// As [`World::join`].
    pub fn host(store: Store, options: &WorldOptions, server: impl Any + Send + Sync) -> Result<World> {
        World::enter(store, options, Some(Box::new(server)))
    }

    fn enter(store: Store, options: &WorldOptions, server: Option<Box<dyn Any + Send + Sync>>) -> Result<World> {
        let own = World::keys(&store, options);
        // Made first, so that a wrong rank or size is told before anybody is asked.
        let layout = Layout::one_host(options.rank, options.size)?;
        let cards = meet(&own, options, server.is_some())?;
        let parting = Parting::after(&cards, server.is_some());
        let origin = Origin { own: own.clone(), change: 0, survivors: options.size };
        let (mut world, counted) = World::settle(own, layout.rank(), cards, origin, options)?;
        (world.parting, world.server) = (parting, server);
        world.look_around(options, counted);
        Ok(world)
    }

    /// The keys of a job in one epoch.
    pub(super) fn keys(store: &Store, options: &WorldOptions) -> Store {
        keys_of(store, &options.job, options.epoch)
    }

    /// The world of these cards, to which this rank owes nothing yet, and how many of its host came before it.
    fn settle(
        base: Store,
        rank: usize,
        cards: Vec<Card>,
        origin: Origin,
        options: &WorldOptions,
    ) -> Result<(World, usize)> {
        let met_ns = cards.iter().map(|card| card.made_ns).max();
        let (members, counted): (Vec<Member>, Vec<usize>) = members(cards).into_iter().unzip();
        let nodes = members.iter().map(|member| u32::try_from(member.node()).unwrap_or(u32::MAX)).collect();
        let layout = Layout::new(rank, nodes)?;
        let Origin { own, change, survivors } = origin;
        let barriers = Barriers::new(own.scope("barrier"), rank, layout.size());
        let world = World {
            layout,
            members,
            epoch: options.epoch.wrapping_add(change),
            job: options.job.clone(),
            base,
            own,
            change,
            survivors,
            barriers,
            parting: Parting::Nothing,
            key: options.key.clone(),
            insecure: options.insecure,
            profile: options.profile,
            alarm: options.alarm.clone(),
            backends: options.backends.clone(),
            ledger: Ledger::default(),
            registry: Registry::default(),
            kin: Arc::default(),
            server: None,
            companions: Vec::new(),
        };
        world.registry.sit(Place { rank, size: world.size(), met_ns });
        Ok((world, counted[rank]))
    }

    /// A newcomer's world, after a change.
    pub(super) fn of_change(
        base: Store,
        rank: usize,
        cards: Vec<Card>,
        origin: Origin,
        options: &WorldOptions,
    ) -> Result<World> {
        let parting = Parting::after(&cards, false);
        let (mut world, counted) = World::settle(base, rank, cards, origin, options)?;
        world.parting = parting;
        world.look_around(options, counted);
        Ok(world)
    }

    /// The world after a change that this rank outlived.
    pub(super) fn into_next(mut self, rank: usize, cards: Vec<Card>, origin: Origin) -> Result<World> {
        let parting = Parting::after(&cards, self.hosts_store());
        let options = WorldOptions::new(self.rank(), self.size()).job(self.job.clone()).insecure(self.insecure);
        let options = options.epoch(self.epoch.wrapping_sub(self.change));
        let options = self.key.clone().into_iter().fold(options, WorldOptions::key);
        let options = self.profile.into_iter().fold(options, WorldOptions::profile);
        let options = self.alarm.clone().into_iter().fold(options, WorldOptions::alarm);
        let options = options.backends(self.backends.clone());
        let (mut world, counted) = World::settle(self.base.clone(), rank, cards, origin, &options)?;
        // Nobody is waited for in the old world, and its store lives on.
        self.parting = Parting::Nothing;
        (world.parting, world.server) = (parting, self.server.take());
        world.companions = std::mem::take(&mut self.companions);
        self.registry.sit(world.registry.place());
        world.registry = self.registry.clone();
        world.look_around(&options, counted);
        Ok(world)
    }

    pub(super) fn base(&self) -> &Store {
        &self.base
    }

    pub(super) fn change(&self) -> u32 {
        self.change
    }

    /// Nobody is told that this rank leaves, unless the store lives here.
    pub(super) fn owe_no_farewell(&mut self) {
        if self.parting == Parting::Tell {
            self.parting = Parting::Nothing;
        }
    }

    /// Whether the world's store lives in this process.
    pub(super) fn hosts_store(&self) -> bool {
        self.server.is_some()
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

    /// How many ranks were in the world before the last [change](World::reconfigure): those below this number. All of them, where it never
    /// changed.
    pub fn survivors(&self) -> usize {
        self.survivors
    }

    /// How often the job was started anew or its world changed before this world.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The job's name.
    pub fn job(&self) -> &JobName {
        &self.job
    }

    /// The world's store for whatever the program wants to share. Other jobs have other keys, and each start of the job has; a
    /// [change](World::reconfigure) of the world leaves them.
    pub fn store(&self) -> Store {
        self.base.scope("user")
    }

    /// Keys of the world's store that the program does not see, for a service beside it: the same after a [change](World::reconfigure), and those
    /// that [`service_keys`] gives to whoever is no member.
    #[doc(hidden)]
    pub fn service_keys(&self, service: &str) -> Store {
        self.base.scope(SERVICE).scope(service)
    }

    /// Waits until every rank has called this with `name`; by `timeout`, the ranks that did not are
    /// [`missing`](phalanx_core::Setup::missing). A name can be used again and again, by one thread of a rank at a time. Where all came, nothing
    /// of it is left on the store, so every step may have a name of its own.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup), with the ranks that did not come where that is the reason; else the store failed, or another
    /// thread of this rank is at the barrier.
    pub fn barrier(&self, name: &str, timeout: Duration) -> Result<()> {
        self.barriers.pass(name, timeout).map_err(|error| error.during(&format!("barrier \"{name}\"")))
    }

    /// Leaves the world. Where its store lives here, waits until all have left, and says who had not by `timeout`;
    /// then the store ends.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup), with the ranks that had not left by `timeout` where the store lives here; else the store is at
    /// fault. The world is left all the same.
    pub fn leave(mut self, timeout: Duration) -> Result<()> {
        self.part(timeout)
    }

    /// By which limits its groups choose algorithms, where they are not told others.
    pub(crate) fn profile(&self) -> Option<Profile> {
        self.profile
    }

    /// The groups that this rank is in, for whoever watches them: it stays the same when the world changes.
    #[doc(hidden)]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Which backends its groups may have.
    pub fn backends(&self) -> &Backends {
        &self.backends
    }

    /// Keeps something until this rank leaves the world, over all its changes.
    #[doc(hidden)]
    pub fn keep(&mut self, companion: impl Any + Send + Sync) {
        self.companions.push(Box::new(companion));
    }

    pub(crate) fn alarm(&self) -> Option<&Arc<dyn Alarm>> {
        self.alarm.as_ref()
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The groups of this rank, as they tell each other whom it waits for.
    pub(crate) fn kin(&self) -> &Arc<Kin> {
        &self.kin
    }

    /// Keys for groups that are formed in this way.
    pub(crate) fn group_scope(&self, way: &str) -> Store {
        self.own.scope("group").scope(way)
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
