//! From a place and a name for oneself to a world: the store is reached, or served to the others, and the ranks meet.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_comm::Backends;
use phalanx_comm::rendezvous::{World, WorldOptions, agree_on_start, latest_start};
use phalanx_comm::secure::{Claim, JobKey, JobName, Session};
use phalanx_comm::store::{
    ClientOptions, FileStore, FileStoreOptions, ServerOptions, StoreAddress, StoreServer, TcpStore,
};
use phalanx_core::schedule::Profile;
use phalanx_core::store::{Store, StoreError};
use phalanx_core::{Error, Result};

#[cfg(feature = "nccl")]
use crate::environment::Variables;
use crate::environment::{Door, Launcher, Placement};
use crate::inquiry::Service;
use crate::lobby::{Lobby, Notice};
use crate::presence::Seat;
use crate::trace::{self, BlackBox};
use crate::url::{self, Place, Query};
use crate::{lobby, lookup, report, settings};

/// A world about to be joined: where, as whom, and with which key.
///
/// ```no_run
/// # use std::time::Duration;
/// # use phalanx::Joining;
/// let world = Joining::url("tcp://node-0:29500?rank=1&world_size=4&key_file=/etc/job.key")?
///     .timeout(Duration::from_secs(60))
///     .join()?;
/// world.barrier("ready", Duration::from_secs(10))?;
/// # Ok::<(), phalanx::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Joining {
    launcher: Option<Launcher>,
    way: Way,
    rank: usize,
    size: usize,
    local_rank: Option<usize>,
    local_size: Option<usize>,
    epoch: u32,
    /// Whether the ranks have to agree on the epoch first.
    agrees_on_start: bool,
    job: Option<JobName>,
    key: Option<JobKey>,
    insecure: bool,
    timeout: Duration,
    /// What the environment names, read when the ranks are to meet.
    profile: Option<Profile>,
    /// What this rank writes down of itself, once it joins.
    black_box: Option<Arc<BlackBox>>,
    metrics: Option<SocketAddr>,
    backends: Backends,
    /// Whether the world works already.
    is_newcomer: bool,
}

/// How the store is come by.
#[derive(Clone, Debug)]
enum Way {
    /// At an address, where `serves` says whether it is this rank that serves it, and `served` whether a rank does.
    Server { address: StoreAddress, serves: bool, served: bool },
    /// On this host, wherever rank 0 serves it.
    Lobby,
    /// In a file that all ranks can open.
    File(PathBuf),
    /// The program has it.
    Given(Store),
}

impl Joining {
    /// What the environment says, as [`Placement::recognise`] reads it.
    ///
    /// Without a launcher's store, rank 0 serves one at `MASTER_ADDR:MASTER_PORT`, or on this host at an address of its own
    /// choice where all ranks are here. The job key is taken from `PHALANX_KEY_FD`, `PHALANX_KEY_FILE` or `PHALANX_KEY`.
    ///
    /// # Errors
    ///
    /// As [`Placement::recognise`] and [`placed`](Joining::placed).
    pub fn environment() -> Result<Joining> {
        Joining::placed(Placement::recognise()?)
    }

    /// What `url` says:
    ///
    /// | url | where |
    /// |---|---|
    /// | `env://` | as the environment says, [`Joining::environment`] |
    /// | `tcp://host:port`, `unix:///path` | a store there, served by rank 0; with `host=false`, by somebody else |
    /// | `file:///path` | a store in that file |
    ///
    /// All but `env://` need `rank` and `world_size`, and may have `local_rank`, `job`, `epoch` and `timeout` (seconds);
    /// those with a server also `key_file` and `insecure`. What is not known is refused by name.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup), which names the URL and what in it is missing, wrong or not known, or the key file that cannot
    /// be used. `env://` as [`environment`](Joining::environment).
    pub fn url(url: &str) -> Result<Joining> {
        let (place, query) = url::parse(url)?;
        let needed = |name: &str, number: Option<usize>| {
            number.ok_or_else(|| Error::setup(format!("url \"{url}\""), format!("{name} is not said")))
        };
        if place == Place::Environment {
            let joining = Joining::environment()?;
            return Ok(query.timeout.into_iter().fold(joining, Joining::timeout));
        }
        let (rank, size) = (needed("rank", query.rank)?, needed("world_size", query.world_size)?);
        let way = Way::of(place, &query, rank);
        Joining::asked(query, way, (rank, size))
    }

    /// Meets on a store that the program has: as rank `rank` of `size`, as epoch 0 of a job without a name unless
    /// [`job`](Joining::job) and [`epoch`](Joining::epoch) say otherwise. The world takes keys below `phalanx` of it.
    ///
    /// ```
    /// # use phalanx::store::{Limits, LocalStore};
    /// # use phalanx::{Joining, Store};
    /// let store = Store::new(LocalStore::new(Limits::default()));
    /// let world = Joining::store(store, 0, 1).join()?;
    /// assert_eq!((world.rank(), world.size()), (0, 1));
    /// # Ok::<(), phalanx::Error>(())
    /// ```
    pub fn store(store: Store, rank: usize, size: usize) -> Joining {
        Joining::by(Way::Given(store), (rank, size))
    }

    /// What `url` says of a world that works already and takes this process in with its next [change](World::reconfigure): `tcp://`,
    /// `unix://` or `file://` as in [`url`](Joining::url), without a rank.
    ///
    /// ```no_run
    /// let world = phalanx::Joining::newcomer("tcp://node-0:29500?key_file=/etc/job.key")?.join()?;
    /// # Ok::<(), phalanx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`url`](Joining::url), and for `env://`, a rank or a size.
    pub fn newcomer(url: &str) -> Result<Joining> {
        let (place, query) = url::parse(url)?;
        let refused = |what: &str| Err(Error::setup(format!("url \"{url}\""), what));
        match (&place, query.rank.or(query.world_size)) {
            (Place::Environment, _) => return refused("a newcomer is told where the store is"),
            (_, Some(_)) => return refused("a newcomer gets its rank from the world"),
            _ => {}
        }
        let way = match place {
            Place::Server(address) => Way::Server { address, serves: false, served: false },
            place => Way::of(place, &query, 0),
        };
        Ok(Joining { is_newcomer: true, ..Joining::asked(query, way, (0, 1))? })
    }

    /// What a query says besides the place.
    fn asked(query: Query, way: Way, (rank, size): (usize, usize)) -> Result<Joining> {
        Ok(Joining {
            key: query.key_file.map(JobKey::read_file).transpose()?,
            local_rank: query.local_rank,
            epoch: query.epoch.unwrap_or(0),
            // Nobody removes the file, so that it may have served an earlier start.
            agrees_on_start: query.epoch.is_none() && matches!(way, Way::File(_)),
            timeout: query.timeout.unwrap_or(DEFAULT_TIMEOUT),
            insecure: query.insecure.unwrap_or(false),
            job: query.job,
            ..Joining::by(way, (rank, size))
        })
    }

    /// By this way as this rank, and nothing else said.
    fn by(way: Way, (rank, size): (usize, usize)) -> Joining {
        Joining {
            launcher: None,
            way,
            rank,
            size,
            local_rank: None,
            local_size: None,
            epoch: 0,
            agrees_on_start: false,
            job: None,
            key: None,
            insecure: false,
            timeout: DEFAULT_TIMEOUT,
            profile: None,
            black_box: None,
            metrics: None,
            backends: Backends::default(),
            is_newcomer: false,
        }
    }

    /// What `placement` says, which was read before.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup) for a store's address that is none, and for a key that cannot be used, with the variable that
    /// leads to it.
    pub fn placed(placement: Placement) -> Result<Joining> {
        let Placement { launcher, rank, size, local_rank, local_size, epoch, agrees_on_start, .. } = placement;
        let Placement { job, door, key, insecure, timeout, .. } = placement;
        let way = match door {
            Door::Store(address) => Way::Server { address: address.parse()?, serves: false, served: false },
            Door::Master { host, port, agent } => {
                let address = StoreAddress::tcp(host.trim_start_matches('[').trim_end_matches(']'), port);
                Way::Server { address, serves: !agent && rank == 0, served: !agent }
            }
            Door::Lobby => Way::Lobby,
        };
        let key = key.as_ref().map(settings::load).transpose()?.map(|(_, key)| key);
        let (launcher, timeout) = (Some(launcher), timeout.unwrap_or(DEFAULT_TIMEOUT));
        let said = Joining::by(way, (rank, size));
        Ok(Joining { launcher, local_rank, local_size, epoch, agrees_on_start, job, key, insecure, timeout, ..said })
    }

    /// What the job is called: worlds of several names share a store.
    pub fn job(mut self, job: JobName) -> Joining {
        self.job = Some(job);
        self
    }

    /// Which start of the job this is. Ranks of another one are not met.
    pub fn epoch(mut self, epoch: u32) -> Joining {
        (self.epoch, self.agrees_on_start) = (epoch, false);
        self
    }

    /// The job key, which all ranks need to have. Everything that the store is told is then encrypted.
    pub fn key(mut self, key: JobKey) -> Joining {
        self.key = Some(key);
        self
    }

    /// Whether to do without a key beyond this machine. Anybody on the way can then read and change what is stored.
    pub fn insecure(mut self, insecure: bool) -> Joining {
        self.insecure = insecure;
        self
    }

    /// How long to wait for the store and for the other ranks. 300 s unless set.
    pub fn timeout(mut self, timeout: Duration) -> Joining {
        self.timeout = timeout;
        self
    }

    /// Answers Prometheus at this address, `GET /metrics`, for as long as the world lasts. Ranks of one host have a port each: this one and those
    /// after it in the order of their local ranks, or any where it is 0. Goes before `PHALANX_METRICS`.
    ///
    /// A port that is taken is an error of joining, before any rank is met. Only where the rank's number on its host is first known from the others
    /// it is a warning in the log: by then they count on this rank, which works without its metrics.
    pub fn metrics(mut self, address: SocketAddr) -> Joining {
        self.metrics = Some(address);
        self
    }

    /// Which backends the world's groups may have, the program's own among them. The host's alone unless set; with the feature `nccl` also one of
    /// that name over the installed NCCL, for groups on `cuda`.
    pub fn backends(mut self, backends: Backends) -> Joining {
        self.backends = backends;
        self
    }

    /// The launcher that was recognised, where the environment was asked.
    pub fn launcher(&self) -> Option<Launcher> {
        self.launcher
    }

    /// Meets the other ranks. Where `PHALANX_TRACE_DIR` names a directory, this rank writes into it what its groups have recorded when a
    /// call fails, and on the signal `SIGUSR2`. Where `PHALANX_PROFILE` names a file, the world's groups choose algorithms by the
    /// [profile](Profile) in it. Where `PHALANX_METRICS` is a port of this host or an address with one, Prometheus is answered there. Unless
    /// `PHALANX_TOP` is 0, `phalanx top` of the same user can ask this rank how it stands, and unless `PHALANX_TRACE_REQUESTS` is 0, whoever may use
    /// the store can [ask](trace::collect) it for what its groups have recorded.
    ///
    /// Where this fails and the launcher asked for an error report (`PHALANX_ERROR_FILE`, `TORCHELASTIC_ERROR_FILE`), one is
    /// left for it, until this process joins after all.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup), with the ranks that are missing where that is the reason.
    pub fn join(self) -> Result<World> {
        let rank = (!self.is_newcomer).then_some(self.rank);
        self.enter().inspect(|_| report::take_back()).inspect_err(|error| report::leave(error, rank))
    }

    fn enter(mut self) -> Result<World> {
        self.profile = settings::profile()?;
        #[cfg(feature = "nccl")]
        {
            self.backends = crate::maker::offered(self.backends, self.local_rank, Variables::of_process())?;
        }
        let black_box = BlackBox::of_environment()?;
        self.black_box = Some(Arc::clone(&black_box));
        let is_asked = trace::Listener::is_wanted()?;
        let asked = Service::of_environment()?;
        let service = Service { metrics: self.metrics.or(asked.metrics), ..asked }.prepare(self.known_local_rank())?;
        let mut world = self.meet()?;
        let seat = Seat::of(&world);
        black_box.open(&seat);
        if is_asked {
            match trace::Listener::start(&world, &black_box) {
                Ok(listener) => world.keep(listener),
                Err(error) => log::warn!("nobody can ask rank {} for its trace: {error}", world.rank()),
            }
        }
        if let Some(office) = service.open(&seat, black_box) {
            world.keep(office);
        }
        Ok(world)
    }

    /// This rank's number on its host, where that is known before the others are met.
    fn known_local_rank(&self) -> Option<usize> {
        let is_alone = self.size == 1 && !self.is_newcomer;
        self.local_rank.or(is_alone.then_some(0))
    }

    fn meet(&self) -> Result<World> {
        if self.rank >= self.size {
            return Err(Error::setup("rank", format!("{} is not below the world size {}", self.rank, self.size)));
        }
        let began = Instant::now();
        match &self.way {
            Way::File(path) => {
                let store = Store::new(FileStore::open(path, FileStoreOptions::new())?);
                self.come(store, began)
            }
            Way::Given(store) => self.come(store.clone(), began),
            Way::Lobby if self.rank == 0 => self.receive(began),
            Way::Lobby => {
                let notice = self.lobby()?.find(self.timeout)?;
                let store = self.reach(&notice.address, Some(&notice.key), began, true)?;
                World::join(store, &self.options(began, Some(&notice.key)))
            }
            Way::Server { address, serves: true, .. } => {
                let (server, store) = self.serve(address, self.key.as_ref(), began)?;
                World::host(store, &self.options(began, self.key.as_ref()), server)
            }
            Way::Server { address, served, .. } => {
                let store = self.reach(address, self.key.as_ref(), began, *served)?;
                self.come(store, began)
            }
        }
    }

    fn come(&self, store: Store, began: Instant) -> Result<World> {
        let options = self.options(began, self.key.as_ref());
        let options = if self.agrees_on_start { options.epoch(self.start(&store, began)?) } else { options };
        if self.is_newcomer { World::enlist(&store, &options) } else { World::join(store, &options) }
    }

    /// How often the job was started before, as the ranks agree on a store that may have served earlier starts.
    fn start(&self, store: &Store, began: Instant) -> Result<u32> {
        let keys = store.scope("phalanx").scope(self.job_name().as_str()).scope("starts");
        match self.is_newcomer {
            true => latest_start(&keys.with_timeout(self.left(began))),
            false => agree_on_start(&keys, self.rank, self.size, self.left(began)),
        }
    }

    /// Rank 0 in the lobby: serves the store and hangs out the notice until all are there.
    fn receive(&self, began: Instant) -> Result<World> {
        let key = match &self.key {
            Some(key) => key.clone(),
            None => JobKey::mint().map_err(|error| Error::setup("job key", error))?,
        };
        let (server, store) = self.serve(&StoreAddress::tcp("127.0.0.1", 0), Some(&key), began)?;
        let notice = Notice { address: server.address().clone(), key, writer: lobby::Writer::this_process() };
        let _posted = self.lobby()?.post(&notice)?;
        World::host(store, &self.options(began, Some(&notice.key)), server)
    }

    fn lobby(&self) -> Result<Lobby> {
        let job = self.job.as_ref().map_or_else(lobby::parent, |job| job.as_str().to_owned());
        Lobby::of_this_user(&format!("{job}.{}", self.epoch))
    }

    fn serve(&self, address: &StoreAddress, key: Option<&JobKey>, began: Instant) -> Result<(StoreServer, Store)> {
        let options =
            ServerOptions::new(address.clone()).job(self.job_name()).epoch(self.epoch).insecure(self.insecure);
        let options = options.world(number(self.size)?);
        lookup::await_own(address, || self.left(began));
        let server = StoreServer::start(key.cloned().into_iter().fold(options, ServerOptions::key))?;
        let store = self.reach(server.address(), key, began, false)?;
        Ok((server, store))
    }

    /// The store at `address`; `served` says that rank 0 is to blame where there is none.
    fn reach(&self, address: &StoreAddress, key: Option<&JobKey>, began: Instant, served: bool) -> Result<Store> {
        let session = Session::mint().map_err(|error| Error::setup("session", error))?;
        let claim = Claim::new(self.job_name(), self.epoch, session);
        let claim = match self.is_newcomer {
            true => claim,
            false => claim.member(number(self.rank)?, number(self.size)?)?,
        };
        let options =
            ClientOptions::new(address.clone()).claim(claim).insecure(self.insecure).timeout(self.left(began));
        let options = key.cloned().into_iter().fold(options, ClientOptions::key);
        TcpStore::connect(options).map(Store::new).map_err(|error| match error {
            StoreError::Timeout { .. } | StoreError::Lost { .. } if served => {
                Error::absent("joining the world", format!("rank 0 serves no store: {error}"), vec![0])
            }
            other => other.into(),
        })
    }

    fn options(&self, began: Instant, key: Option<&JobKey>) -> WorldOptions {
        let options = WorldOptions::new(self.rank, self.size).epoch(self.epoch).job(self.job_name());
        let options = options.timeout(self.timeout).began(began).insecure(self.insecure);
        let options = key.cloned().into_iter().fold(options, WorldOptions::key);
        let options = self.profile.into_iter().fold(options, WorldOptions::profile);
        let options = options.backends(self.backends.clone());
        let options = match &self.black_box {
            Some(black_box) => options.alarm(Arc::clone(black_box) as _),
            None => options,
        };
        let options = self.local_rank.into_iter().fold(options, WorldOptions::local_rank);
        self.local_size.into_iter().fold(options, WorldOptions::local_size)
    }

    fn job_name(&self) -> JobName {
        self.job.clone().unwrap_or_default()
    }

    fn left(&self, began: Instant) -> Duration {
        self.timeout.saturating_sub(began.elapsed())
    }
}

impl Way {
    fn of(place: Place, query: &Query, rank: usize) -> Way {
        match place {
            Place::Server(address) => {
                let served = query.host.unwrap_or(true);
                Way::Server { address, serves: served && rank == 0, served }
            }
            Place::File(path) => Way::File(path),
            Place::Environment => Way::Lobby,
        }
    }
}

/// Ranks and sizes travel as 32-bit numbers.
fn number(index: usize) -> Result<u32> {
    u32::try_from(index).map_err(|_| Error::setup("world size", format!("{index} is above any that is supported")))
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);
