//! Disks that do not do what they are told.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use phalanx_checkpoint::Disk;

/// Asks before it changes or reads anything, by the name of the act. What is refused is half done where there are halves.
pub(crate) struct Asking<F>(Arc<dyn Disk>, F);

impl<F: Fn(&str, &Path) -> io::Result<()> + Send + Sync> Asking<F> {
    pub(crate) fn new(disk: Arc<dyn Disk>, ask: F) -> Arc<Asking<F>> {
        Arc::new(Asking(disk, ask))
    }
}

impl Asking<fn(&str, &Path) -> io::Result<()>> {
    /// A disk until it stops.
    pub(crate) fn stopped_by(disk: Arc<dyn Disk>, stop: &Arc<Stop>) -> Arc<impl Disk + use<>> {
        let stop = stop.clone();
        Asking::new(disk, move |_, _| stop.ask())
    }
}

impl<F: Fn(&str, &Path) -> io::Result<()> + Send + Sync> Disk for Asking<F> {
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.1("make_directory", path)?;
        self.0.make_directory(path)
    }

    fn create(&self, path: &Path) -> io::Result<()> {
        self.1("create", path)?;
        self.0.create(path)
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let refused = self.1("append", path);
        self.0.append(path, if refused.is_ok() { bytes } else { &bytes[..bytes.len() / 2] })?;
        refused
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.1("sync", path)?;
        self.0.sync(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.1("rename", to)?;
        self.0.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.1("remove_file", path)?;
        self.0.remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        if let Err(refused) = self.1("remove_directory", path) {
            for name in self.0.list(path)?.into_iter().step_by(2) {
                self.0.remove_file(&path.join(name))?;
            }
            return Err(refused);
        }
        self.0.remove_directory(path)
    }

    fn byte_len(&self, path: &Path) -> io::Result<u64> {
        self.0.byte_len(path)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.1("read", path)?;
        self.0.read(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.0.list(path)
    }

    fn has(&self, path: &Path) -> io::Result<bool> {
        self.1("has", path)?;
        self.0.has(path)
    }
}

/// Lets so many things be done and then nothing any more, as after `kill -9`.
pub(crate) struct Stop {
    left: AtomicUsize,
    did_stop: AtomicBool,
}

impl Stop {
    pub(crate) fn after(acts: usize) -> Arc<Stop> {
        Arc::new(Stop { left: AtomicUsize::new(acts), did_stop: AtomicBool::new(false) })
    }

    pub(crate) fn did_stop(&self) -> bool {
        self.did_stop.load(Ordering::SeqCst)
    }

    pub(crate) fn ask(&self) -> io::Result<()> {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.map(drop).map_err(|_| {
            self.did_stop.store(true, Ordering::SeqCst);
            io::Error::other("stopped")
        })
    }
}
