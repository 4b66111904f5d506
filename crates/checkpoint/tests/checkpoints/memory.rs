//! A disk in memory that can lose power: what was not synced is there afterwards or is not, each thing for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use phalanx_checkpoint::Disk;

#[derive(Default)]
pub(crate) struct Memory(Mutex<State>);

/// Everything as programs see it, and as it would be after a loss of power.
#[derive(Default)]
struct State {
    seen: Tree,
    safe: Tree,
    files: Vec<File>,
}

/// Directories, and which file has which name.
type Tree = BTreeMap<PathBuf, Option<usize>>;

#[derive(Clone, Default)]
struct File {
    seen: Vec<u8>,
    safe: Vec<u8>,
}

impl Memory {
    /// With one directory.
    pub(crate) fn at(root: &Path) -> Memory {
        let tree = Tree::from([(root.to_owned(), None)]);
        Memory(Mutex::new(State { seen: tree.clone(), safe: tree, files: vec![] }))
    }

    /// What a loss of power leaves.
    pub(crate) fn after_loss_of_power(&self, random: &mut Rng) -> Memory {
        let State { seen, safe, files } = &*self.state();
        let mut left = Tree::new();
        // Parents come before what is in them.
        for path in seen.keys().chain(safe.keys()).collect::<BTreeSet<_>>() {
            let entry = if random.bool() { seen.get(path) } else { safe.get(path) };
            let is_reachable = left.is_empty() || path.parent().is_some_and(|parent| left.contains_key(parent));
            if let Some(entry) = entry.filter(|_| is_reachable) {
                left.insert(path.clone(), *entry);
            }
        }
        let mut file = |File { seen, safe }: &File| {
            let bytes =
                if seen == safe || random.bool() { safe } else { &seen[..random.usize(..=seen.len())].to_vec() };
            File { seen: bytes.clone(), safe: bytes.clone() }
        };
        let files = files.iter().map(&mut file).collect();
        Memory(Mutex::new(State { seen: left.clone(), safe: left, files }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn file(&mut self, path: &Path) -> io::Result<&mut File> {
        let file = self.seen.get(path).copied().flatten().ok_or(ErrorKind::NotFound)?;
        Ok(&mut self.files[file])
    }

    fn directory(&self, path: &Path) -> io::Result<()> {
        self.seen.get(path).filter(|file| file.is_none()).map(drop).ok_or(ErrorKind::NotADirectory.into())
    }
}

impl Disk for Memory {
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        for path in path.ancestors().filter(|path| !path.as_os_str().is_empty()) {
            state.seen.entry(path.to_owned()).or_default();
        }
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if let Ok(file) = state.file(path) {
            file.seen.clear();
            return Ok(());
        }
        state.directory(path.parent().expect("a directory"))?;
        let file = state.files.len();
        state.files.push(File::default());
        state.seen.insert(path.to_owned(), Some(file));
        Ok(())
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.state().file(path)?.seen.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if let Ok(file) = state.file(path) {
            file.safe = file.seen.clone();
            return Ok(());
        }
        state.directory(path)?;
        let State { seen, safe, .. } = &mut *state;
        safe.retain(|entry, _| entry.parent() != Some(path));
        safe.extend(
            seen.iter().filter(|(entry, _)| entry.parent() == Some(path)).map(|(entry, file)| (entry.clone(), *file)),
        );
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.file(from)?;
        let file = state.seen.remove(from).flatten();
        state.seen.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.file(path)?;
        state.seen.remove(path);
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.directory(path)?;
        state.seen.retain(|entry, _| !entry.starts_with(path));
        Ok(())
    }

    fn byte_len(&self, path: &Path) -> io::Result<u64> {
        Ok(self.state().file(path)?.seen.len() as u64)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.state().file(path)?.seen.clone())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        if !state.seen.contains_key(path) {
            return Err(ErrorKind::NotFound.into());
        }
        state.directory(path)?;
        let inside = state.seen.keys().filter(|entry| entry.parent() == Some(path));
        Ok(inside.map(|entry| entry.file_name().expect("a name").to_string_lossy().into_owned()).collect())
    }

    fn has(&self, path: &Path) -> io::Result<bool> {
        Ok(self.state().file(path).is_ok())
    }
}
