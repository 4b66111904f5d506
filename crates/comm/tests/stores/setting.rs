//! Stores as the suite needs them: made empty, reached by as many clients as a test likes, and gone at its end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use phalanx_comm::secure::JobKey;
use phalanx_comm::store::{
    ClientOptions, FileStore, FileStoreOptions, LocalStore, ServerOptions, Speech, StoreServer, TcpStore,
};
use phalanx_core::store::{Limits, Store};

/// A home, as far as the suite knows it.
pub(crate) struct Setting {
    /// Makes a store, and returns what reaches it as one more client.
    pub(crate) make: fn(Limits) -> Door,
}

/// What reaches a store as one more client. The store goes with it.
pub(crate) type Door = Box<dyn Fn() -> Store + Send + Sync>;

/// A file of a name that nobody else has; removed at the end.
#[derive(Debug)]
pub(crate) struct TempFile(PathBuf);

impl Setting {
    pub(crate) fn door(&self) -> Door {
        self.limited(Limits::default())
    }

    pub(crate) fn limited(&self, limits: Limits) -> Door {
        let door = (self.make)(limits);
        Box::new(move || door().with_timeout(TIMEOUT))
    }

    /// Runs `client` on as many threads, each a client of one store, and returns what each returned.
    pub(crate) fn run<R: Send>(&self, count: usize, client: impl Fn(usize, Store) -> R + Sync) -> Vec<R> {
        let (door, client) = (self.door(), &client);
        thread::scope(|scope| {
            let clients = (0..count).map(|number| (number, door()));
            let threads: Vec<_> = clients.map(|(number, store)| scope.spawn(move || client(number, store))).collect();
            let ends: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            ends.into_iter().map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    }
}

pub(crate) fn local(limits: Limits) -> Door {
    let home = LocalStore::new(limits);
    Box::new(move || Store::new(home.clone()))
}

pub(crate) fn file(limits: Limits) -> Door {
    let path = TempFile::new();
    let options = FileStoreOptions::new().limits(limits);
    Box::new(move || Store::new(FileStore::open(path.path(), options).expect("a store in a file")))
}

/// A server on a port of its own.
pub(crate) fn served(limits: Limits, speech: Speech, encrypted: bool) -> Door {
    let key = encrypted.then(|| JobKey::mint().expect("random bytes"));
    // The slash that a key gets on the wire is not the user's.
    let limits = limits.key(limits.key_byte_len() + 1);
    let options = ServerOptions::new("127.0.0.1:0".parse().expect("an address")).limits(limits);
    let options = key.clone().into_iter().fold(options, ServerOptions::key);
    let server = StoreServer::start(options).expect("a free port");
    Box::new(move || {
        let options = ClientOptions::new(server.address().clone()).speech(speech).timeout(TIMEOUT);
        let options = key.clone().into_iter().fold(options, ClientOptions::key);
        Store::new(TcpStore::connect(options).expect("a server that runs"))
    })
}

impl TempFile {
    pub(crate) fn new() -> TempFile {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        TempFile(std::env::temp_dir().join(format!("phalanx-stores-{}-{number}", process::id())))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _absent = fs::remove_file(&self.0);
    }
}

/// Long enough for a machine with more to do, and short enough that a hang is told as the error it should be.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
