//! What a process was told by whoever started it, whatever launcher that was.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use phalanx_comm::secure::JobName;
use phalanx_core::{Error, Result, fnv};

use super::variables::{ENVIRONMENT, Variables, wrong};
use super::{kubernetes, open_mpi, pmi, slurm, torch};
use crate::settings::INSECURE;

/// This process's place in a job, as its environment tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub(crate) launcher: Launcher,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) local_rank: Option<usize>,
    pub(crate) local_size: Option<usize>,
    pub(crate) epoch: u32,
    /// Whether the ranks have to agree themselves on how often the job was started, on the store of the launcher's agents.
    pub(crate) agrees_on_start: bool,
    pub(crate) job: Option<JobName>,
    pub(crate) door: Door,
    pub(crate) key: Option<KeySource>,
    pub(crate) insecure: bool,
    pub(crate) timeout: Option<Duration>,
}

/// Who started this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// `phalanx run`.
    Phalanx,
    /// torchrun.
    Torchrun,
    /// Somebody who set `RANK` and `WORLD_SIZE`.
    Variables,
    /// Slurm's `srun`.
    Slurm,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// `mpiexec` of MPICH, Intel MPI or another that speaks PMI.
    Pmi,
    /// A Kubernetes job with indexed completion.
    Kubernetes,
}

/// Where the ranks meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// At a store that is there before them.
    Store(String),
    /// At a port, where rank 0 serves the store unless an agent does.
    Master { host: String, port: u16, agent: bool },
    /// On this host, at an address that rank 0 chooses and writes down.
    Lobby,
}

/// Where the job key is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum KeySource {
    Descriptor(u32),
    File(PathBuf),
    /// In a variable, as hexadecimal digits.
    Text(String),
}

/// What a launcher's own variables say. Numbers come with the variable to blame.
pub(super) struct Told {
    pub(super) launcher: Launcher,
    pub(super) rank: (&'static str, usize),
    pub(super) size: (&'static str, usize),
    pub(super) local_rank: Option<usize>,
    pub(super) local_size: Option<usize>,
    pub(super) job: Option<String>,
    pub(super) epoch: Option<u32>,
    /// Where to meet when neither `PHALANX_STORE` nor `MASTER_ADDR` says it, or why that is not known.
    pub(super) door: Result<Door, String>,
}

impl Placement {
    /// Reads this process's environment.
    ///
    /// Launchers are recognised in this order: `phalanx run`, torchrun and variables set in their way; Open MPI; PMI;
    /// Slurm; Kubernetes. Open MPI and PMI come before Slurm because their launchers run within its jobs, where Slurm's
    /// variables describe the launcher's own helpers.
    ///
    /// Under every launcher these are read besides its own:
    ///
    /// | variable | says |
    /// |---|---|
    /// | `PHALANX_STORE` | the address of a store that is there already |
    /// | `MASTER_ADDR`, `MASTER_PORT` | where rank 0 serves the store, or an agent does (`TORCHELASTIC_USE_AGENT_STORE`) |
    /// | `PHALANX_KEY_FD`, `PHALANX_KEY_FILE`, `PHALANX_KEY` | the job key: a descriptor, a file, or 64 hexadecimal digits |
    /// | `PHALANX_JOB`, `PHALANX_EPOCH` | the job's name, and how often it was started anew |
    /// | `PHALANX_JOIN_TIMEOUT` | how long to wait for the others, in seconds |
    /// | `PHALANX_INSECURE` | 1 to do without a key beyond this machine |
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup), which names the variable that is missing or wrong, or where no launcher's are set.
    pub fn recognise() -> Result<Placement> {
        let placement = Placement::from_lookup(Variables::of_process().0)?;
        log::info!("{placement}");
        Ok(placement)
    }

    /// The same from any variables: a value for each name that is set.
    ///
    /// # Errors
    ///
    /// As [`recognise`](Placement::recognise).
    pub fn from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Placement> {
        let variables = Variables(lookup);
        let rooms = [torch::recognise, open_mpi::recognise, pmi::recognise, slurm::recognise, kubernetes::recognise];
        for recognise in rooms {
            if let Some(told) = recognise(variables)? {
                return told.complete(variables);
            }
        }
        let advice = "start it with `phalanx run`, torchrun, mpirun or srun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT";
        Err(Error::setup(ENVIRONMENT, format!("no launcher's variables are set: {advice}")))
    }

    /// Who started this process.
    pub fn launcher(&self) -> Launcher {
        self.launcher
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// This rank's number on its host, where the launcher says it.
    pub fn local_rank(&self) -> Option<usize> {
        self.local_rank
    }

    /// How many ranks this host has, where the launcher says it.
    pub fn local_size(&self) -> Option<usize> {
        self.local_size
    }

    /// How often the job was started anew.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The job's name, where the launcher gives it one.
    pub fn job(&self) -> Option<&str> {
        self.job.as_ref().map(JobName::as_str)
    }
}

impl Told {
    /// Adds what is told in the same way under every launcher.
    fn complete(self, variables: Variables<'_>) -> Result<Placement> {
        let ((rank_name, rank), (size_name, size)) = (self.rank, self.size);
        if size == 0 {
            return Err(wrong(size_name, size, "must be at least 1"));
        }
        if rank >= size {
            return Err(wrong(rank_name, rank, format!("must be below {size_name}, which is {size}")));
        }
        let told_job = self.job.as_deref().and_then(plain);
        let epoch = variables.whole("PHALANX_EPOCH")?.or(self.epoch);
        let door = door(variables, self.door)?;
        Ok(Placement {
            launcher: self.launcher,
            rank,
            size,
            local_rank: self.local_rank,
            local_size: self.local_size,
            epoch: epoch.unwrap_or(0),
            agrees_on_start: epoch.is_none() && matches!(door, Door::Master { agent: true, .. }),
            job: job(variables)?.or(told_job),
            door,
            key: key_source(variables)?,
            insecure: variables.switch(INSECURE)?,
            timeout: timeout(variables)?,
        })
    }
}

fn door(variables: Variables<'_>, otherwise: Result<Door, String>) -> Result<Door> {
    let port = variables.whole::<u64>("MASTER_PORT")?.map(port).transpose()?;
    if let Some(address) = variables.text("PHALANX_STORE") {
        return Ok(Door::Store(address));
    }
    if let Some(host) = variables.text("MASTER_ADDR") {
        let agent = variables.switch("TORCHELASTIC_USE_AGENT_STORE")?;
        let port = port.ok_or_else(|| Error::setup(ENVIRONMENT, missing("MASTER_PORT")))?;
        return Ok(Door::Master { host, port, agent });
    }
    match otherwise.map_err(|why| Error::setup(ENVIRONMENT, why))? {
        Door::Master { host, port: chosen, agent } => Ok(Door::Master { host, port: port.unwrap_or(chosen), agent }),
        other => Ok(other),
    }
}

fn port(number: u64) -> Result<u16> {
    u16::try_from(number).map_err(|_| wrong("MASTER_PORT", number, "must be a port, at most 65535"))
}

/// Where the variables say that the job key is.
pub(crate) fn key_source(variables: Variables<'_>) -> Result<Option<KeySource>> {
    if let Some(number) = variables.whole("PHALANX_KEY_FD")? {
        return Ok(Some(KeySource::Descriptor(number)));
    }
    let file = variables.text("PHALANX_KEY_FILE").map(|path| KeySource::File(path.into()));
    Ok(file.or_else(|| variables.text("PHALANX_KEY").map(KeySource::Text)))
}

/// Where ranks meet whose launcher only says how many of them share a host.
pub(super) fn one_host(size: usize, local_size: Option<usize>, how: &str) -> Result<Door, String> {
    if size == 1 || local_size == Some(size) {
        return Ok(Door::Lobby);
    }
    Err(format!("MASTER_ADDR is not set, and the ranks are not all on one host: {how}"))
}

pub(super) fn missing(name: &str) -> String {
    format!("{name} is not set")
}

/// A port that follows from the job's name, below those that systems give to clients.
pub(super) fn port_of(job: &str) -> u16 {
    20_000 + (fnv::hash32(job.bytes()) % 10_000) as u16
}

/// How long to wait. No time at all would be over before the store is asked, which would then be blamed.
fn timeout(variables: Variables<'_>) -> Result<Option<Duration>> {
    let timeout = variables.seconds(JOIN_TIMEOUT)?;
    match timeout.is_some_and(|timeout| timeout.is_zero()) {
        true => Err(wrong(JOIN_TIMEOUT, 0, "must be above 0")),
        false => Ok(timeout),
    }
}

fn job(variables: Variables<'_>) -> Result<Option<JobName>> {
    let Some(name) = variables.text("PHALANX_JOB") else { return Ok(None) };
    let must = "must be 1 to 64 letters, digits, dots, underscores and hyphens";
    JobName::new(&name).map(Some).map_err(|_| wrong("PHALANX_JOB", name, must))
}

/// A launcher's name for a job, in letters that a job's name may have. Where it cannot stay as it is, it ends in a hash of the
/// whole name: launchers tell jobs apart by what comes last, behind the name of a host that may be long.
fn plain(job: &str) -> Option<JobName> {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '-' };
    let kept = || job.chars().map(letter).take(MAX_JOB_LEN - 1 - HASH_LEN).collect::<String>();
    JobName::new(job).or_else(|_| JobName::new(&format!("{}-{:016x}", kept(), fnv::hash64(job.bytes())))).ok()
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "recognised {}: rank {} of {}", self.launcher, self.rank, self.size)?;
        if let Some(local) = self.local_rank {
            write!(f, ", local rank {local}")?;
        }
        write!(f, ", epoch {}, job {}", self.epoch, self.job().unwrap_or("unnamed"))?;
        match &self.door {
            Door::Store(address) => write!(f, ", store {address}"),
            Door::Master { host, port, agent: true } => write!(f, ", store of the agent at {host}:{port}"),
            Door::Master { host, port, agent: false } => write!(f, ", store of rank 0 at {host}:{port}"),
            Door::Lobby => write!(f, ", store of rank 0 on this host"),
        }
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Launcher::Phalanx => "phalanx run",
            Launcher::Torchrun => "torchrun",
            Launcher::Variables => "RANK and WORLD_SIZE",
            Launcher::Slurm => "Slurm",
            Launcher::OpenMpi => "Open MPI",
            Launcher::Pmi => "PMI",
            Launcher::Kubernetes => "Kubernetes",
        })
    }
}

/// Where, never what.
impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::Descriptor(number) => write!(f, "Descriptor({number})"),
            KeySource::File(path) => write!(f, "File({})", path.display()),
            KeySource::Text(_) => f.write_str("Text(..)"),
        }
    }
}

/// PyTorch's, where nothing else is said.
pub(super) const DEFAULT_PORT: u16 = 29_500;
const MAX_JOB_LEN: usize = 64;
/// Sixteen hexadecimal digits.
const HASH_LEN: usize = 16;
const JOIN_TIMEOUT: &str = "PHALANX_JOIN_TIMEOUT";

#[cfg(test)]
mod tests;
