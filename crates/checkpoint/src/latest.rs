//! The newest checkpoint that is whole, for one rank or for all; and that none is saved behind it.

use std::path::Path;
use std::sync::Arc;

use phalanx_core::Group;

use crate::checkpoint::Checkpoint;
use crate::disk::{Disk, SystemDisk};
use crate::error::{Error, Result};
use crate::names;

impl Checkpoint {
    /// The newest checkpoint in a directory; none where nothing was saved. One whose index is damaged, or of which a file is missing or has
    /// another length, is [passed over](Checkpoint::passed_over). What is in the files of ranks is checked when they are read.
    ///
    /// Ranks that look for one together call [`latest_among`](Checkpoint::latest_among).
    ///
    /// # Errors
    ///
    /// Why the newest is none where no other is whole; what else the disk said, where it might say something else another time; and
    /// [`Error::Format`].
    pub fn latest(root: &Path) -> Result<Option<Checkpoint>> {
        Checkpoint::latest_on(Arc::new(SystemDisk), root)
    }

    /// The same on another disk than the file system.
    ///
    /// # Errors
    ///
    /// As [`latest`](Checkpoint::latest).
    pub fn latest_on(disk: Arc<dyn Disk>, root: &Path) -> Result<Option<Checkpoint>> {
        Ok(newest(disk, root)?.map(|(_, checkpoint)| checkpoint))
    }

    /// The same for all ranks of a group, which all call this: the first looks for it, and the others open that one. What was passed over is
    /// known to the first.
    ///
    /// # Errors
    ///
    /// As [`latest`](Checkpoint::latest) on the first rank, [`Error::Unfound`] on the others where that has one; those of the group.
    pub fn latest_among(group: &Group, root: &Path) -> Result<Option<Checkpoint>> {
        let own = (group.rank() == 0).then(|| newest(Arc::new(SystemDisk), root));
        let said = own.as_ref().map(|own| match own {
            Ok(found) => Ok(found.as_ref().map(|(step, _)| *step)),
            Err(error) => Err(error.to_string()),
        });
        let step: std::result::Result<Option<u64>, String> = group.broadcast_object(said, 0)?;
        if let Some(own) = own {
            return Ok(own?.map(|(_, checkpoint)| checkpoint));
        }
        let step = step.map_err(|why| Error::Unfound { rank: group.members()[0], why })?;
        step.map(|step| Checkpoint::open(&names::directory(root, step))).transpose()
    }
}

/// What there is in a directory.
#[derive(Default)]
struct Found {
    /// The newest that is whole, and the step by which its directory is called.
    whole: Option<(u64, Checkpoint)>,
    /// Why newer ones are not.
    damaged: Vec<Error>,
}

/// The newest that is whole, and the step by which its directory is called.
fn newest(disk: Arc<dyn Disk>, root: &Path) -> Result<Option<(u64, Checkpoint)>> {
    let Found { whole, damaged } = newest_after(&disk, root, None)?;
    match whole {
        Some((step, checkpoint)) => Ok(Some((step, checkpoint.pass_over(damaged)))),
        // That nothing was saved is another thing: one would begin anew, in the place of what may be mended.
        None => damaged.into_iter().next().map_or(Ok(None), Err),
    }
}

/// Refuses to save a step while a later one has a checkpoint that is whole: whoever looked for the newest would go on with a run that was given up.
pub(crate) fn refuse_later(disk: &Arc<dyn Disk>, root: &Path, step: u64) -> Result<()> {
    match newest_after(disk, root, Some(step))?.whole {
        Some((later, _)) => Err(Error::Later { file: names::directory(root, later), step }),
        None => Ok(()),
    }
}

/// The newest that is whole of all steps, or of those after one.
fn newest_after(disk: &Arc<dyn Disk>, root: &Path, step: Option<u64>) -> Result<Found> {
    let mut damaged = vec![];
    let names = match disk.list(root) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Found::default()),
        listed => listed.map_err(Error::disk(root))?,
    };
    let mut steps: Vec<u64> = names.iter().filter_map(|name| names::step(name)).collect();
    steps.retain(|found| Some(*found) > step);
    steps.sort_unstable();
    for step in steps.into_iter().rev() {
        let directory = names::directory(root, step);
        let index = directory.join(names::INDEX);
        if !disk.has(&index).map_err(Error::disk(&index))? {
            continue;
        }
        match Checkpoint::open_complete_on(Arc::clone(disk), &directory) {
            Ok(checkpoint) => return Ok(Found { whole: Some((step, checkpoint)), damaged }),
            Err(error) if error.is_damage() => damaged.push(error),
            Err(error) => return Err(error),
        }
    }
    Ok(Found { whole: None, damaged })
}
