//! From addresses that were exchanged elsewhere to a group: one rank opens a door, a store with a key of its own, and all meet there.

use std::time::{Duration, Instant};

use phalanx::{Error, GroupOptions, JobKey, JobName, OpKind, Result, Site, Store, Wiring, World, WorldOptions};
use phalanx_comm::rendezvous;
use phalanx_comm::secure::{Claim, Session};
use phalanx_comm::store::{ClientOptions, LocalStore, ServerOptions, StoreAddress, StoreServer, TcpStore};
use pyo3::{Py, PyResult, Python, pyclass, pyfunction, pymethods};

use crate::callsite;
use crate::failure::raised;
use crate::group::Group;
use crate::keys::DoorKey;
use crate::manner::Manner;
use crate::presence::{Presence, Shown};
use crate::served::Served;
use crate::world::seconds;

/// Where the ranks of one group meet. It is needed until all of them have, and after that by a group that [keeps](Group::keep) it.
#[pyclass(frozen, module = "phalanx._native")]
pub(crate) struct Door {
    pub(crate) server: Served,
    port: u16,
}

#[pymethods]
impl Door {
    /// A door for `size` ranks who prove `key`, on a free port of this host, for its own processes only unless `is_public`.
    #[new]
    fn new(py: Python<'_>, size: usize, is_public: bool, key: &DoorKey) -> PyResult<Door> {
        py.detach(|| open(size, is_public, key.key())).map_err(|error| raised(py, &error, 0))
    }

    #[getter]
    fn port(&self) -> u16 {
        self.port
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.server.close());
    }
}

/// Meets the other ranks at `door` (host, port, key) and forms a group with them: all are there when this returns. A rank that is alone
/// needs no door.
#[pyfunction]
#[pyo3(signature = (door, rank, size, name, timeout, manner, shown=None))]
#[expect(clippy::too_many_arguments, reason = "one call from one place in Python")]
pub(crate) fn join(
    py: Python<'_>,
    door: Option<(String, u16, Py<DoorKey>)>,
    rank: usize,
    size: usize,
    name: String,
    timeout: f64,
    manner: &Manner,
    shown: Option<(Py<Presence>, Vec<usize>)>,
) -> PyResult<Group> {
    let shown = shown.map(Shown::new);
    let (timeout, began, site) = (seconds(timeout), Instant::now(), callsite::of_caller(py, OpKind::Barrier));
    let group = Meeting { door, rank, size, name, manner, shown, timeout, began, site };
    py.detach(|| group.hold()).map_err(|error| raised(py, &error, 0))
}

/// Which host this is: equal for two processes exactly where they have one kernel and one network.
#[pyfunction]
pub(crate) fn host_identity() -> String {
    rendezvous::host_identity()
}

struct Meeting<'a> {
    door: Option<(String, u16, Py<DoorKey>)>,
    rank: usize,
    size: usize,
    name: String,
    manner: &'a Manner,
    shown: Option<Shown>,
    timeout: Duration,
    began: Instant,
    site: Option<Site>,
}

impl Meeting<'_> {
    /// The world is left again at once: a group does without it once it stands.
    fn hold(self) -> Result<Group> {
        let Manner { transport, protection, profile, .. } = *self.manner;
        let options = WorldOptions::new(self.rank, self.size).timeout(self.timeout).began(self.began).job(job()?);
        let options = profile.into_iter().fold(options, WorldOptions::profile);
        let world = match &self.door {
            Some((host, port, key)) => {
                let key = key.get().key();
                let store = self.reach(StoreAddress::tcp(host.as_str(), *port), key.clone())?;
                World::join(store, &options.key(key.clone()))?
            }
            None => World::join(Store::new(LocalStore::default()), &options)?,
        };
        let group = self.manner.options().name(self.name.as_str()).timeout(self.timeout);
        let group = self.shown.iter().map(Shown::members).fold(group, GroupOptions::members);
        let group = self.shown.iter().map(Shown::alarm).fold(group, GroupOptions::alarm);
        let wiring = Wiring::default().options(group).transport(transport).protection(protection);
        let group = world.wire(&wiring.timeout(self.left()))?;
        // Whoever comes out of it knows that all have come in.
        group.at(self.site).within(self.left()).barrier()?;
        let transport = world.groups().pop().map_or(transport, |formed| formed.transport);
        if let Some(shown) = self.shown {
            shown.show(&world, &group, transport);
        }
        Ok(Group::met(group, transport))
    }

    fn reach(&self, address: StoreAddress, key: JobKey) -> Result<Store> {
        let session = Session::mint().map_err(|error| Error::setup("session", error))?;
        let claim = Claim::new(job()?, 0, session).member(number(self.rank)?, number(self.size)?);
        let claim = claim.map_err(|error| Error::setup("joining the group", error))?;
        let options = ClientOptions::new(address).key(key).claim(claim).timeout(self.left());
        Ok(Store::new(TcpStore::connect(options)?))
    }

    fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.began.elapsed())
    }
}

fn open(size: usize, is_public: bool, key: &JobKey) -> Result<Door> {
    let (job, size) = (job()?, number(size)?);
    let start = |host: &str| {
        let options = ServerOptions::new(StoreAddress::tcp(host, 0)).key(key.clone());
        StoreServer::start(options.job(job.clone()).world(size))
    };
    // The first takes visitors over both versions of the protocol, where there are two.
    let server = if is_public { start("::").or_else(|_| start("0.0.0.0")) } else { start("127.0.0.1") }?;
    let StoreAddress::Tcp { port, .. } = *server.address() else {
        return Err(Error::setup("door", format!("{} has no port", server.address())));
    };
    Ok(Door { server: Served::new(server), port })
}

fn job() -> Result<JobName> {
    JobName::new("torch").map_err(|error| Error::setup("job name", error))
}

/// Ranks and sizes travel as 32-bit numbers.
fn number(index: usize) -> Result<u32> {
    u32::try_from(index).map_err(|_| Error::setup("world size", format!("{index} is above any that is supported")))
}
