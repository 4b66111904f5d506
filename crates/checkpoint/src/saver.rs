//! Saving while training goes on: a thread writes what was copied for it, and the ranks agree there, over a group of their own, that all
//! have written before the index makes it a checkpoint.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use phalanx_core::Group;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::disk::{Disk, SystemDisk};
use crate::error::{Error, Result};
use crate::file::{self, Entry};
use crate::index::{Index, Span, Tensor, Written};
use crate::latest;
use crate::names;
use crate::piece::{Piece, Progress};
use crate::sweep;
use crate::underway::Underway;

/// Saves one checkpoint after the other into a directory that all ranks see.
///
/// One that is dropped waits up to five minutes for the save under way, but not while its thread panics, and tells the log where that
/// comes to nothing. Who wants to know calls [`finish`](Saver::finish).
#[must_use]
pub struct Saver {
    writer: Writer,
    underway: Option<Underway<Result<()>>>,
}

/// What the thread of a save has.
#[derive(Clone)]
struct Writer {
    root: PathBuf,
    disk: Arc<dyn Disk>,
    group: Option<Group>,
    keep: usize,
}

/// What a rank says of a save before any writes. The mark is that of the first.
#[derive(Default, Serialize, Deserialize)]
struct Begun {
    mark: u64,
    step: u64,
    progress: Progress,
}

impl Saver {
    /// Saves into `root`, alone.
    pub fn new(root: impl Into<PathBuf>) -> Saver {
        let writer = Writer { root: root.into(), disk: Arc::new(SystemDisk), group: None, keep: 2 };
        Saver { writer, underway: None }
    }

    /// Saves together with the ranks of a group, which is used for nothing else.
    pub fn group(mut self, group: Group) -> Saver {
        self.writer.group = Some(group);
        self
    }

    /// Another disk than the file system.
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Saver {
        self.writer.disk = disk;
        self
    }

    /// How many checkpoints are kept, at least 1; 2 unless set. Older ones are removed once a new one is whole; what
    /// cannot be removed is told to the log.
    pub fn keep(mut self, count: usize) -> Saver {
        self.writer.keep = count.max(1);
        self
    }

    /// Begins to save this rank's pieces of a step, and returns. All ranks call this for the same steps in the same order, with the same
    /// progress or, but for the first, with none; the next save and [`finish`](Saver::finish) wait for it. A step that has a checkpoint may be
    /// saved again, and none before one that has: who goes on from an older checkpoint removes the later ones, or saves elsewhere.
    ///
    /// # Errors
    ///
    /// Those of the save before, as [`finish`](Saver::finish) tells them: then this one is not begun, and another call may begin it. Or where
    /// there is no thread.
    pub fn save(&mut self, step: u64, pieces: Vec<Piece>, progress: Progress) -> Result<()> {
        self.finish()?;
        let writer = self.writer.clone();
        let underway = Underway::begin(move || writer.save(step, &pieces, progress));
        self.underway = Some(underway.map_err(Error::disk(&self.writer.root))?);
        Ok(())
    }

    /// Waits until the last save is a checkpoint, on all ranks.
    ///
    /// # Errors
    ///
    /// Why it is none: pieces that are not elements of their tensors ([`Error::Tensor`]), a later checkpoint in the directory
    /// ([`Error::Later`]) or ranks that save different things ([`Error::Apart`]; in these cases nothing was written), what the disk said, here or
    /// [elsewhere](Error::Elsewhere), or that ranks are gone.
    /// What was written is removed then, as far as the disk lets it, unless ranks are gone or the index may be in its place already.
    pub fn finish(&mut self) -> Result<()> {
        let Some(underway) = self.underway.take() else { return Ok(()) };
        self.outcome(underway.wait())
    }

    fn outcome(&self, ended: thread::Result<Result<()>>) -> Result<()> {
        ended.unwrap_or_else(|_| Err(Error::damaged(&self.writer.root, "the thread that saves has ended by a panic")))
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        let Some(underway) = self.underway.take() else { return };
        if underway.is_forked() {
            // The thread is the parent's, and never ends here.
            return std::mem::forget(underway);
        }
        // The others shall hear soon of a rank that panics.
        let patience = if thread::panicking() { Duration::ZERO } else { PATIENCE };
        match underway.wait_for(patience).map(|ended| self.outcome(ended)) {
            Some(Ok(())) => {}
            Some(Err(error)) => log::error!("the last save is no checkpoint: {error}"),
            None => log::error!("{}: the last save is not waited for any more", self.writer.root.display()),
        }
    }
}

impl std::fmt::Debug for Saver {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Saver").field("root", &self.writer.root).field("keep", &self.writer.keep).finish()
    }
}

impl Writer {
    fn save(&self, step: u64, pieces: &[Piece], progress: Progress) -> Result<()> {
        let directory = names::directory(&self.root, step);
        let checked = check(&directory, pieces);
        let marked = checked.and_then(|()| if self.rank() == 0 { self.begin(step, &directory) } else { Ok(0) });
        let begun = agree(self.group.as_ref(), self.together(marked.map(|mark| Begun { mark, step, progress }))?)?;
        let mark = begun.mark;
        let index = self.prepare(&directory, begun, pieces).inspect_err(|error| {
            // Where ranks are gone, the first may still list the file.
            if !matches!(error, Error::Ranks(_)) {
                file::discard(&*self.disk, &directory.join(names::file(self.rank(), self.world(), mark)));
            }
            if self.rank() == 0 {
                file::discard(&*self.disk, &directory.join(names::draft(mark)));
            }
        })?;
        self.together(index.as_ref().map_or(Ok(()), |index| self.commit(&directory, index, mark)))?;
        // It is a checkpoint whatever becomes of this, for which nobody waits.
        if let Some(index) = &index {
            sweep::unlisted(&self.disk, &directory, index);
            sweep::older(&self.disk, &self.root, index.step, self.keep);
        }
        Ok(())
    }

    /// Does all that may find no room on the disk: writes this rank's file and, on the first, which returns it, the index.
    fn prepare(&self, directory: &Path, begun: Begun, pieces: &[Piece]) -> Result<Option<Index>> {
        let written = self.together(self.write(directory, begun.mark, pieces))?;
        let mut index = None;
        let drafted = match self.rank() {
            0 => self.draft(directory, begun, written).map(|drafted| index = Some(drafted)),
            _ => Ok(()),
        };
        self.together(drafted)?;
        Ok(index)
    }

    /// Makes the directory, where the step may have a checkpoint, and chooses what marks the files of this save, its index until that takes
    /// its place among them: those that are there keep their names to themselves, and a rank that is left over from a save that did not end
    /// writes to none of them.
    fn begin(&self, step: u64, directory: &Path) -> Result<u64> {
        latest::refuse_later(&self.disk, &self.root, step)?;
        self.disk.make_lasting_directory(&self.root).map_err(Error::disk(&self.root))?;
        self.disk.make_directory(directory).map_err(Error::disk(directory))?;
        self.disk.sync(&self.root).map_err(Error::disk(&self.root))?;
        Ok(fastrand::u64(..))
    }

    /// Writes this rank's file.
    fn write(&self, directory: &Path, mark: u64, pieces: &[Piece]) -> Result<Written> {
        let file = names::file(self.rank(), self.world(), mark);
        let present: Vec<&Piece> = pieces.iter().filter(|piece| !piece.bytes.is_empty()).collect();
        let entry = |piece: &&Piece| Entry { name: piece.name.clone(), dtype: piece.dtype, shape: vec![piece.len()] };
        let entries: Vec<Entry> = present.iter().map(entry).collect();
        let bytes = |at: usize| Ok(Cow::from(&present[at].bytes));
        let seal = file::write(&*self.disk, &directory.join(&file), &entries, None, bytes)?;
        self.disk.sync(directory).map_err(Error::disk(directory))?;
        let mut tensors = BTreeMap::new();
        for piece in pieces {
            let span = Span { file: file.clone(), start: piece.start, len: piece.len() };
            let pieces = if span.len == 0 { vec![] } else { vec![span] };
            tensors.insert(piece.name.clone(), Tensor { dtype: piece.dtype, shape: piece.shape.clone(), pieces });
        }
        Ok(Written { file, seal, tensors })
    }

    /// Writes the index under another name.
    fn draft(&self, directory: &Path, begun: Begun, written: Vec<Written>) -> Result<Index> {
        let path = directory.join(names::draft(begun.mark));
        let index = Index::of(begun.step, begun.progress, written, &path)?;
        let text = index.to_text().map_err(|error| Error::damaged(&path, error.to_string()))?;
        file::draft(&*self.disk, &path, |append| append(text.as_bytes()))?;
        Ok(index)
    }

    /// Puts the index in place of the one that the step had: with that this is its checkpoint.
    fn commit(&self, directory: &Path, index: &Index, mark: u64) -> Result<()> {
        let (disk, path) = (&self.disk, directory.join(names::INDEX));
        // Another save of the step, begun because this one was taken for dead, has removed them where it came first.
        index.check_files(&**disk, directory)?;
        disk.rename(&directory.join(names::draft(mark)), &path).map_err(Error::disk(&path))?;
        disk.sync(directory).map_err(Error::disk(directory))?;
        Ok(())
    }

    /// What all ranks did, once all have done it; the first failure where one could not.
    fn together<T: Serialize + DeserializeOwned>(&self, own: Result<T>) -> Result<Vec<T>> {
        let Some(group) = &self.group else { return own.map(|own| vec![own]) };
        let told = own.as_ref().map_err(ToString::to_string);
        let told = serde_json::to_vec(&told).map_err(|error| Error::damaged(&self.root, error.to_string()))?;
        let all = group.all_gather_bytes(&told)?;
        own?;
        let read = |(&rank, told): (&usize, &Vec<u8>)| match serde_json::from_slice::<Told<T>>(told) {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(why)) => Err(Error::Elsewhere { rank, why }),
            Err(error) => Err(Error::Elsewhere { rank, why: error.to_string() }),
        };
        group.members().iter().zip(&all).map(read).collect()
    }

    fn rank(&self) -> usize {
        self.group.as_ref().map_or(0, Group::rank)
    }

    fn world(&self) -> usize {
        self.group.as_ref().map_or(1, Group::size)
    }
}

/// That all pieces can be loaded once they are written.
fn check(directory: &Path, pieces: &[Piece]) -> Result<()> {
    let mut names = BTreeSet::new();
    for piece in pieces {
        let is_first = names.insert(&piece.name);
        let checked = if is_first { piece.check() } else { Err("it is there twice".to_owned()) };
        checked.map_err(|why| Error::Tensor { file: directory.to_owned(), name: piece.name.clone(), why })?;
    }
    Ok(())
}

/// What the first rank says, where no other says anything else: one index would keep that alone.
fn agree(group: Option<&Group>, all: Vec<Begun>) -> Result<Begun> {
    let mut all = all.into_iter();
    let first = all.next().unwrap_or_default();
    let others = group.map_or(&[][..], |group| &group.members()[1..]);
    let apart = |(other, &rank)| Some(Error::Apart { rank, why: difference(&first, &other)? });
    let apart = all.zip(others).find_map(apart);
    apart.map_or(Ok(first), Err)
}

/// What another rank says otherwise than the first. One that says nothing of the progress leaves it to the first.
fn difference(first: &Begun, other: &Begun) -> Option<String> {
    if other.step != first.step {
        return Some(format!("step {}, not {}", other.step, first.step));
    }
    let said = |begun: &Begun, name: &String| {
        begun.progress.get(name).map_or("nothing".to_owned(), |said| format!("{said:?}"))
    };
    let mut names = first.progress.keys().chain(other.progress.keys()).filter(|_| !other.progress.is_empty());
    let name = names.find(|name| first.progress.get(*name) != other.progress.get(*name))?;
    Some(format!("{} as progress {name:?}, not {}", said(other, name), said(first, name)))
}

type Told<T> = std::result::Result<T, String>;

/// How long a drop waits: as long as ranks do for each other unless told otherwise. A disk may hang for longer.
const PATIENCE: Duration = Duration::from_secs(300);
