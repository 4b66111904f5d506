//! What is removed once a checkpoint is whole. It is one whatever happens here: what cannot be removed is told to the log, and tried again
//! after the next save.

use std::path::Path;

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::names;

/// Removes files of ranks that the index does not list: of the checkpoint that the step had before, and of saves that did not end.
pub(crate) fn unlisted(disk: &dyn Disk, directory: &Path, index: &Index) {
    let names = tell(disk.list(directory).map_err(Error::disk(directory))).unwrap_or_default();
    for name in names.iter().filter(|name| names::is_file(name) && !index.files.contains_key(*name)) {
        let file = directory.join(name);
        tell(disk.remove_file(&file).map_err(Error::disk(&file)));
    }
}

/// Removes checkpoints from before this step but the last few, and what saves that did not end have left there. That of the step itself
/// is one of the few.
pub(crate) fn older(disk: &dyn Disk, root: &Path, step: u64, keep: usize) {
    let mut whole = 1;
    for old in tell(steps(disk, root)).unwrap_or_default().into_iter().filter(|old| *old < step) {
        let directory = names::directory(root, old);
        let Some([is_whole, is_file]) = tell(look(disk, &directory)) else { continue };
        whole += usize::from(is_whole);
        // A file that is called so is somebody else's.
        if (!is_whole || whole > keep) && !is_file {
            tell(remove(disk, &directory));
        }
    }
}

/// All steps that have a directory, the newest first.
fn steps(disk: &dyn Disk, root: &Path) -> Result<Vec<u64>> {
    let names = disk.list(root).map_err(Error::disk(root))?;
    let mut steps: Vec<u64> = names.iter().filter_map(|name| names::step(name)).collect();
    steps.sort_unstable_by(|a, b| b.cmp(a));
    Ok(steps)
}

/// Whether it is the directory of a checkpoint that is whole, and whether it is a file.
fn look(disk: &dyn Disk, directory: &Path) -> Result<[bool; 2]> {
    let has = |path: &Path| disk.has(path).map_err(Error::disk(path));
    Ok([has(&directory.join(names::INDEX))?, has(directory)?])
}

/// Removes a directory, the index before all else: half a checkpoint is none.
fn remove(disk: &dyn Disk, directory: &Path) -> Result<()> {
    let index = directory.join(names::INDEX);
    if disk.has(&index).map_err(Error::disk(&index))? {
        disk.remove_file(&index).map_err(Error::disk(&index))?;
        disk.sync(directory).map_err(Error::disk(directory))?;
    }
    disk.remove_directory(directory).map_err(Error::disk(directory))
}

fn tell<T>(done: Result<T>) -> Option<T> {
    done.inspect_err(|error| log::warn!("what is too old stays: {error}")).ok()
}
