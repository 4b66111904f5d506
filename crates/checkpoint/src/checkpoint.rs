//! A checkpoint to load from: any elements of any tensor, whoever has written them.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use safetensors::Dtype;

use crate::disk::{Disk, SystemDisk};
use crate::error::{Error, Result};
use crate::file::{self, Contents, Entry, Seal};
use crate::index::{Index, Span, Tensor};
use crate::names;
use crate::piece::{Progress, element_count, element_len};

/// A checkpoint that is whole, or one plain safetensors file. Files are read and checked when an element of theirs is asked for.
pub struct Checkpoint {
    disk: Arc<dyn Disk>,
    /// The directory, or the file.
    path: PathBuf,
    index: Index,
    read: HashMap<String, Contents>,
    passed_over: Vec<Error>,
}

impl Checkpoint {
    /// The checkpoint of one step by its directory, or a plain safetensors file.
    ///
    /// # Errors
    ///
    /// [`Error::Disk`] and [`Error::Damaged`], which name the file.
    pub fn open(path: &Path) -> Result<Checkpoint> {
        Checkpoint::open_on(Arc::new(SystemDisk), path)
    }

    /// The same on another disk than the file system.
    ///
    /// # Errors
    ///
    /// As [`open`](Checkpoint::open).
    pub fn open_on(disk: Arc<dyn Disk>, path: &Path) -> Result<Checkpoint> {
        if disk.has(path).map_err(Error::disk(path))? {
            return Checkpoint::open_whole(disk, path);
        }
        let file = path.join(names::INDEX);
        let bytes = disk.read(&file).map_err(Error::disk(&file))?;
        let index = Index::read(&file, &bytes)?;
        Ok(Checkpoint { disk, path: path.to_owned(), index, read: HashMap::new(), passed_over: vec![] })
    }

    fn open_whole(disk: Arc<dyn Disk>, path: &Path) -> Result<Checkpoint> {
        let contents = Contents::read(&*disk, path, None)?;
        let mut tensors = BTreeMap::new();
        for (name, place) in contents.tensors() {
            let len = element_count(&place.shape).unwrap_or_default();
            let span = Span { file: String::new(), start: 0, len };
            let tensor = Tensor { dtype: place.dtype, shape: place.shape.clone(), pieces: vec![span] };
            tensors.insert(name.to_owned(), tensor);
        }
        let mut progress: Progress = contents.metadata.clone().into_iter().collect();
        // Files of before have it under a name that the caller may have used as well.
        let step = progress.remove(STEP).or_else(|| progress.get(STEP_BEFORE).cloned());
        let step = step.and_then(|step| step.parse().ok()).unwrap_or_default();
        let index = Index::of_whole(step, progress, tensors);
        let read = HashMap::from([(String::new(), contents)]);
        Ok(Checkpoint { disk, path: path.to_owned(), index, read, passed_over: vec![] })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// After how many steps it was saved.
    pub fn step(&self) -> u64 {
        self.index.step
    }

    /// How many ranks have saved it.
    pub fn world(&self) -> usize {
        self.index.world
    }

    /// What was said of how far training had come.
    pub fn progress(&self) -> &Progress {
        &self.index.progress
    }

    /// Why newer ones were passed over where this was [looked for](Checkpoint::latest), the newest first: each names a file that is damaged or
    /// missing.
    pub fn passed_over(&self) -> &[Error] {
        &self.passed_over
    }

    /// Says why newer ones were.
    pub(crate) fn pass_over(mut self, newer: Vec<Error>) -> Checkpoint {
        self.passed_over = newer;
        self
    }

    /// The same as [`open_on`](Checkpoint::open_on), with all files of ranks there.
    pub(crate) fn open_complete_on(disk: Arc<dyn Disk>, path: &Path) -> Result<Checkpoint> {
        let checkpoint = Checkpoint::open_on(disk, path)?;
        checkpoint.index.check_files(&*checkpoint.disk, path)?;
        Ok(checkpoint)
    }

    /// Whether it is the one of this index.
    pub(crate) fn lists(&self, index: &Index) -> bool {
        self.index.files.keys().eq(index.files.keys())
    }

    /// The names of all tensors, their types and shapes.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, Dtype, &[usize])> {
        self.index.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.dtype, tensor.shape.as_slice()))
    }

    /// Elements of a flattened tensor of `f32`, which must have this shape.
    ///
    /// # Errors
    ///
    /// [`Error::Tensor`] where there is no such tensor; [`Error::Disk`] and [`Error::Damaged`] for the files that hold it.
    pub fn floats(&mut self, name: &str, shape: &[usize], elements: Range<usize>) -> Result<Vec<f32>> {
        let tensor = self.tensor(name)?;
        if (tensor.dtype, tensor.shape.as_slice()) != (Dtype::F32, shape) {
            let why = format!("{:?} of {:?}, must be F32 of {shape:?}", tensor.dtype, tensor.shape);
            return Err(self.refuse(name, why));
        }
        let bytes = self.bytes(name, elements)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    /// The bytes of elements of a flattened tensor.
    ///
    /// # Errors
    ///
    /// As [`floats`](Checkpoint::floats).
    pub fn bytes(&mut self, name: &str, elements: Range<usize>) -> Result<Vec<u8>> {
        let tensor = self.tensor(name)?.clone();
        let len = element_count(&tensor.shape).unwrap_or_default();
        let size = element_len(tensor.dtype).unwrap_or(1);
        if elements.end > len || elements.start > elements.end {
            return Err(self.refuse(name, format!("elements {elements:?} of {len}")));
        }
        // As long as what is found, not as what an index says that there is.
        let mut bytes = Vec::new();
        for span in &tensor.pieces {
            let start = elements.start.max(span.start);
            let end = elements.end.min(span.start + span.len);
            if start < end {
                let held = self.held(name, &tensor, span)?;
                bytes.extend_from_slice(&held[(start - span.start) * size..(end - span.start) * size]);
            }
        }
        Ok(bytes)
    }

    /// Writes everything into one plain safetensors file, which any framework reads and [`open`](Checkpoint::open) does as well.
    ///
    /// # Errors
    ///
    /// [`Error::Disk`] and [`Error::Damaged`], which name the file.
    pub fn write_whole(&mut self, path: &Path) -> Result<()> {
        let entry = |(name, dtype, shape): (&str, Dtype, &[usize])| Entry {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
        };
        let mut entries: Vec<Entry> = self.tensors().map(entry).collect();
        // The longest elements first, so that all lie where their type may: readers look at them where they are.
        entries.sort_by(|one, other| other.dtype.cmp(&one.dtype).then_with(|| one.name.cmp(&other.name)));
        let mut metadata = self.progress().clone();
        metadata.insert(STEP.to_owned(), self.step().to_string());
        let disk = self.disk.clone();
        let whole = |at: usize| {
            let len = element_count(&entries[at].shape).unwrap_or_default();
            self.bytes(&entries[at].name, 0..len).map(Cow::from)
        };
        file::write(&*disk, path, &entries, Some(&metadata), whole)?;
        let parent = names::parent(path);
        disk.sync(parent).map_err(Error::disk(parent))
    }

    fn tensor(&self, name: &str) -> Result<&Tensor> {
        self.index.tensors.get(name).ok_or_else(|| self.refuse(name, "it is not there".to_owned()))
    }

    /// The bytes of one piece, from the file that has it.
    fn held(&mut self, name: &str, tensor: &Tensor, span: &Span) -> Result<&[u8]> {
        let path = if span.file.is_empty() { self.path.clone() } else { self.path.join(&span.file) };
        let contents = match self.read.remove(&span.file) {
            Some(contents) => contents,
            None => Contents::read(&*self.disk, &path, self.seal(&span.file))?,
        };
        let contents = self.read.entry(span.file.clone()).or_insert(contents);
        let size = element_len(tensor.dtype).unwrap_or(1);
        let bytes = contents.tensor(name, tensor.dtype).filter(|bytes| bytes.len() == span.len * size);
        bytes.ok_or_else(|| Error::damaged(&path, format!("it does not hold the piece of {name} that the index says")))
    }

    fn seal(&self, file: &str) -> Option<Seal> {
        self.index.files.get(file).copied()
    }

    fn refuse(&self, name: &str, why: String) -> Error {
        Error::Tensor { file: self.path.clone(), name: name.to_owned(), why }
    }
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Checkpoint").field("path", &self.path).field("step", &self.step()).finish()
    }
}

/// The entry of a plain file's metadata that says after how many steps it was written.
const STEP: &str = "phalanx.step";
const STEP_BEFORE: &str = "step";
