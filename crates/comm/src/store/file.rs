//! A store in a file that several processes share: a log of changes, which each of them replays into a copy of its own.
//!
//! It waits by looking again and again, because network file systems tell nobody that a file has changed. Changes are decided
//! under the file's lock with all earlier ones replayed, so they have one order for everybody.

mod header;
mod log;
mod record;
mod replica;
mod state;
#[cfg(test)]
mod tests;
mod waiting;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use phalanx_core::Error;
use phalanx_core::store::{Doubt, Home, Key, Limits, Reply, Request, StoreError};

use header::Header;
use log::{Fault, Log};
use state::{Begun, State, Step};
use waiting::Looks;

use super::owner::Owner;

/// A store in a file, for processes that share a file system and have no server.
///
/// The file is made when it is not there, for this user alone, and stays when the store is dropped. One that belongs to neither this user nor
/// root, or that others may write, is refused, as is a symbolic link. It only grows: past its
/// limit, changes are refused with [`StoreFull`](phalanx_core::store::Refusal::StoreFull). A process may be killed at any moment: what it had not written to
/// the end was not done. A process that was forked from the one that opened it opens it for itself. The store does not survive a crash of
/// the host that holds the file, and a file system that does not answer is not given up at a deadline.
pub struct FileStore {
    path: PathBuf,
    owner: Owner,
    state: Mutex<State>,
}

/// What a new file is made with. Whoever opens it later takes what is written there.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct FileStoreOptions {
    limits: Limits,
    log: u64,
}

impl FileStoreOptions {
    /// The limits of [`Limits::default`], and a file of at most 1 GiB.
    pub fn new() -> FileStoreOptions {
        FileStoreOptions { limits: Limits::default(), log: 1 << 30 }
    }

    /// How much the store takes before it refuses.
    pub fn limits(mut self, limits: Limits) -> FileStoreOptions {
        self.limits = limits;
        self
    }

    /// How long the file may become, in bytes: all changes ever made, not only what is stored. 1 GiB unless set.
    pub fn log(mut self, bytes: u64) -> FileStoreOptions {
        self.log = bytes;
        self
    }
}

impl Default for FileStoreOptions {
    fn default() -> FileStoreOptions {
        FileStoreOptions::new()
    }
}

impl FileStore {
    /// Opens the store in the file at `path`, or makes it. A file that is something else is refused and left as it is.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup), which names the path: the file cannot be opened or made, is refused as told
    /// [above](FileStore), or is no store of this version.
    pub fn open(path: impl AsRef<Path>, options: FileStoreOptions) -> Result<FileStore, Error> {
        let path = path.as_ref();
        let refused = |fault: Fault| Error::setup(describe(path), fault.0);
        let header = Header { limits: options.limits, log: options.log };
        let state = Log::open(path).and_then(|log| State::new(log, header)).map_err(refused)?;
        Ok(FileStore { path: path.to_owned(), owner: Owner::here(), state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `step` until it has an answer; none once the deadline has passed.
    ///
    /// Between two calls nothing is held, so neither a thread of this process nor another one waits for a sleeper.
    fn look(&self, timeout: Duration, mut step: impl FnMut(&mut State) -> Step) -> Step {
        let mut looks = Looks::new(timeout);
        loop {
            if let Some(answer) = step(&mut self.lock())? {
                return Ok(Some(answer));
            }
            if !looks.wait() {
                return Ok(None);
            }
        }
    }

    /// Waits for the end of a watch that `begin` may set up; on a deadline it is told what was missing.
    fn watch(
        &self,
        timeout: Duration,
        missing: &mut Vec<Key>,
        begin: impl Fn(&mut State) -> Result<Begun, Fault>,
    ) -> Step {
        let mut watch = None;
        let answer = self.look(timeout, |state| match watch {
            Some(watch) => state.watched(watch),
            None => match begin(state)? {
                Begun::Answer(answer) => Ok(Some(answer)),
                Begun::Watch(begun) => {
                    watch = Some(begun);
                    Ok(None)
                }
                Begun::Nothing => Ok(None),
            },
        });
        if let Some(watch) = watch {
            *missing = self.lock().unwatch(watch);
        }
        answer
    }

    /// The answer, and what was missing if there is none.
    fn answer(&self, request: Request, timeout: Duration) -> (Step, Vec<Key>) {
        let mut missing: Vec<Key> = request.keys().cloned().collect();
        let step = match request {
            Request::Get { keys, wait: true } => self.look(timeout, |state| state.values(&keys, &mut missing)),
            Request::Pop { key, wait: true } => self.look(timeout, |state| state.pop(&key)),
            Request::Wait { keys } => self.watch(timeout, &mut missing, |state| state.begin_wait(&keys)),
            Request::Barrier { key, size } => self.watch(timeout, &mut missing, |state| state.arrive(&key, size)),
            request if changes(&request) => self.look(timeout, |state| state.change(&request)),
            request => self.look(timeout, |state| state.read(request.clone())),
        };
        (step, missing)
    }
}

impl Home for FileStore {
    fn ask(&self, request: Request, timeout: Duration) -> Result<Reply, StoreError> {
        let (verb, barrier) = (request.verb(), matches!(request, Request::Barrier { .. }));
        if !self.owner.is_here() {
            // The lock on the file is both processes' at once.
            return Err(self.owner.denied(verb, &self.describe(), "open it again"));
        }
        let (step, keys) = self.answer(request, timeout);
        let doubt = if barrier { Doubt::Unknown } else { Doubt::None };
        match step {
            Ok(Some(answer)) => answer.map_err(|refusal| StoreError::Refused { verb, refusal }),
            Ok(None) => Err(StoreError::Timeout { verb, after: timeout, keys, detail: self.describe(), doubt }),
            Err(Fault(why)) => Err(StoreError::Lost { verb, detail: format!("{}: {why}", self.describe()), doubt }),
        }
    }

    fn describe(&self) -> String {
        describe(&self.path)
    }
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileStore({})", self.path.display())
    }
}

fn describe(path: &Path) -> String {
    format!("the store in {}", path.display())
}

fn changes(request: &Request) -> bool {
    use Request::{Add, Append, CompareSet, Delete, Pop, Push, Set};
    matches!(
        request,
        Set { .. } | Add { .. } | CompareSet { .. } | Delete { .. } | Append { .. } | Push { .. } | Pop { .. }
    )
}
