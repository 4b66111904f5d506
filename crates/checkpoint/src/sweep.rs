//! What is removed once a checkpoint is whole. It is one whatever happens here: what cannot be removed is told to the log, and tried again
//! after the next save.

use std::path::Path;
use std::sync::Arc;

use crate::checkpoint::Checkpoint;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::names;

/// Removes files of ranks that the index does not list: of the checkpoint that the step had before, and of saves that did not end.
pub(crate) fn unlisted(disk: &Arc<dyn Disk>, directory: &Path, index: &Index) {
    let names = tell(disk.list(directory).map_err(Error::disk(directory))).unwrap_or_default();
    let remove = |name: &String| {
        let file = directory.join(name);
        tell(disk.remove_file(&file).map_err(Error::disk(&file)));
    };
    // With these a rank that is left over from another save of the step could put its own index in this one's place.
    names.iter().filter(|name| names::is_draft(name)).for_each(remove);
    // Where one has, what it lists is not this save's to remove.
    let in_place = tell(Checkpoint::open_on(Arc::clone(disk), directory));
    if in_place.is_some_and(|in_place| in_place.lists(index)) {
        let is_unlisted = |name: &&String| names::is_file(name) && !index.files.contains_key(*name);
        names.iter().filter(is_unlisted).for_each(remove);
    }
}

/// Removes checkpoints from before this step but the last few, and what saves that did not end have left there. That of the step itself
/// is one of the few.
pub(crate) fn older(disk: &Arc<dyn Disk>, root: &Path, step: u64, keep: usize) {
    let mut whole = 1;
    for old in tell(steps(&**disk, root)).unwrap_or_default().into_iter().filter(|old| *old < step) {
        let directory = names::directory(root, old);
        let Some(found) = tell(look(disk, &directory)) else { continue };
        whole += usize::from(found == Found::Whole);
        let is_too_old = match found {
            Found::Whole => whole > keep,
            // It may be mended, and none of those that are kept is missing for it.
            Found::Damaged => whole >= keep,
            Found::Unfinished => true,
            Found::Foreign => false,
        };
        if is_too_old {
            tell(remove(&**disk, &directory));
        }
    }
}

/// What a directory that is called as a checkpoint is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Whole,
    /// Its index cannot be read, or a file is missing or has another length.
    Damaged,
    /// It has no index.
    Unfinished,
    /// A file, which is somebody else's.
    Foreign,
}

/// All steps that have a directory, the newest first.
fn steps(disk: &dyn Disk, root: &Path) -> Result<Vec<u64>> {
    let names = disk.list(root).map_err(Error::disk(root))?;
    let mut steps: Vec<u64> = names.iter().filter_map(|name| names::step(name)).collect();
    steps.sort_unstable_by(|a, b| b.cmp(a));
    Ok(steps)
}

fn look(disk: &Arc<dyn Disk>, directory: &Path) -> Result<Found> {
    let has = |path: &Path| disk.has(path).map_err(Error::disk(path));
    if has(directory)? {
        return Ok(Found::Foreign);
    }
    if !has(&directory.join(names::INDEX))? {
        return Ok(Found::Unfinished);
    }
    match Checkpoint::open_complete_on(Arc::clone(disk), directory) {
        Ok(_) => Ok(Found::Whole),
        Err(error) if error.is_damage() => Ok(Found::Damaged),
        Err(error) => Err(error),
    }
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
