//! The black box of a rank: what its groups have recorded, written down when a call fails, on a signal, or when asked for.
//!
//! Where `PHALANX_TRACE_DIR` names a directory, every world that is joined has one. `phalanx trace analyze DIR` reads what the ranks
//! wrote.

use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::SystemTime;

use phalanx_comm::Registry;
use phalanx_comm::rendezvous::World;
use phalanx_core::{Alarm, Error, Group, Result};
use phalanx_trace::{Dump, Identity, files};
use signal_hook::consts::SIGUSR2;
use signal_hook::iterator::Signals;

/// Writes what the groups of this world have recorded on this rank into a directory, for `phalanx trace`; returns the file's path.
///
/// # Errors
///
/// [`Setup`](phalanx_core::ErrorKind::Setup), which names the file and what the system said.
pub fn dump(world: &World, directory: &Path) -> Result<PathBuf> {
    write(directory, host_name(world), world.registry(), &HashMap::new())
}

/// What a rank writes down of itself.
#[derive(Debug)]
pub(crate) struct BlackBox {
    directory: PathBuf,
    /// Known once the rank has joined.
    seat: OnceLock<(String, Registry)>,
    /// The first failure of each group, by its name.
    verdicts: Mutex<HashMap<String, String>>,
}

impl BlackBox {
    /// The black box that the environment asks for.
    pub(crate) fn of_environment() -> Option<Arc<BlackBox>> {
        let directory = env::var_os(VARIABLE).filter(|directory| !directory.is_empty())?;
        Some(Arc::new(BlackBox { directory: directory.into(), seat: OnceLock::new(), verdicts: Mutex::default() }))
    }

    /// Begins to record this world, and to wait for the signal.
    pub(crate) fn open(self: &Arc<BlackBox>, world: &World) {
        let _ = self.seat.set((host_name(world).to_owned(), world.registry().clone()));
        let listening = Signals::new([SIGUSR2]).and_then(|mut signals| {
            let own = Arc::downgrade(self);
            let listen = move || {
                for _ in &mut signals {
                    match own.upgrade() {
                        Some(own) => own.write(),
                        None => return,
                    }
                }
            };
            thread::Builder::new().name("phalanx-trace".to_owned()).spawn(listen)
        });
        if let Err(error) = listening {
            log::warn!("rank {} writes no trace on a signal: {error}", world.rank());
        }
    }

    fn write(&self) {
        let Some((host_name, registry)) = self.seat.get() else { return };
        let verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = write(&self.directory, host_name, registry, &verdicts) {
            log::warn!("rank {} writes no trace: {error}", registry.seat().0);
        }
    }
}

impl Alarm for BlackBox {
    fn failed(&self, group: &Group, error: &Error) {
        let mut verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        verdicts.entry(group.name().to_owned()).or_insert_with(|| error.to_string());
        drop(verdicts);
        self.write();
    }
}

fn host_name(world: &World) -> &str {
    world.members()[world.rank()].host_name()
}

fn write(
    directory: &Path,
    host_name: &str,
    registry: &Registry,
    verdicts: &HashMap<String, String>,
) -> Result<PathBuf> {
    let (rank, world_size) = registry.seat();
    let identity = Identity { rank, world_size, host_name: host_name.to_owned(), pid: std::process::id() };
    let mut dump = Dump::new(identity, SystemTime::now());
    for (formed, group) in registry.groups() {
        let description = format!("over {}", formed.transport);
        dump.add(&group, &description, verdicts.get(group.name()).cloned());
    }
    files::write(directory, &dump).map_err(|error| Error::setup("trace", error))
}

const VARIABLE: &str = "PHALANX_TRACE_DIR";
