//! The index of a checkpoint: what there is and where. It is read without trust: what passes here covers every element of every tensor
//! exactly once, and says of no file that it holds more than its length.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use safetensors::Dtype;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::file::Seal;
use crate::piece::{Progress, element_count, element_len};

/// Where everything is. Fields stand in the order of the alphabet, here and below, as keys do in the file, so that the checksum does not
/// depend on whether a build of the JSON reader keeps their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Index {
    pub(crate) files: BTreeMap<String, Seal>,
    format: u32,
    pub(crate) progress: Progress,
    pub(crate) step: u64,
    pub(crate) tensors: BTreeMap<String, Tensor>,
    pub(crate) world: usize,
}

/// A tensor and its pieces, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tensor {
    pub(crate) dtype: Dtype,
    pub(crate) pieces: Vec<Span>,
    pub(crate) shape: Vec<usize>,
}

/// Some elements of a tensor, and the file that has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) file: String,
    pub(crate) len: usize,
    pub(crate) start: usize,
}

/// What one rank has written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Written {
    pub(crate) file: String,
    pub(crate) seal: Seal,
    pub(crate) tensors: BTreeMap<String, Tensor>,
}

impl Index {
    /// That every file is there, below this directory, and has its length. What is in them is checked when they are read.
    pub(crate) fn check_files(&self, disk: &dyn Disk, directory: &Path) -> Result<()> {
        self.files.iter().try_for_each(|(file, seal)| seal.check_on(disk, &directory.join(file)))
    }

    /// What all ranks have written together.
    pub(crate) fn of(step: u64, progress: Progress, written: Vec<Written>, path: &Path) -> Result<Index> {
        let mut index = Index {
            format: FORMAT,
            step,
            world: written.len(),
            progress,
            files: BTreeMap::new(),
            tensors: BTreeMap::new(),
        };
        for Written { file, seal, tensors } in written {
            index.files.insert(file, seal);
            for (name, tensor) in tensors {
                index.add(name, tensor).map_err(|why| Error::damaged(path, why))?;
            }
        }
        index.tensors.values_mut().for_each(|tensor| tensor.pieces.sort_by_key(|span| span.start));
        index.check().map_err(|why| Error::damaged(path, why))?;
        Ok(index)
    }

    fn add(&mut self, name: String, tensor: Tensor) -> std::result::Result<(), String> {
        let Some(known) = self.tensors.get_mut(&name) else {
            self.tensors.insert(name, tensor);
            return Ok(());
        };
        if (known.dtype, &known.shape) != (tensor.dtype, &tensor.shape) {
            return Err(format!("ranks disagree about {name}: {:?} and {:?}", known.shape, tensor.shape));
        }
        known.pieces.extend(tensor.pieces);
        Ok(())
    }

    /// As it stands in the file, with a checksum of its own.
    pub(crate) fn to_text(&self) -> serde_json::Result<String> {
        let text = serde_json::to_value(self)?.to_string();
        let sealed = Sealed { crc32c: crc32c::crc32c(text.as_bytes()), index: serde_json::from_str(&text)? };
        Ok(format!("{}\n", serde_json::to_string_pretty(&sealed)?))
    }

    /// What stands in a file.
    pub(crate) fn read(path: &Path, bytes: &[u8]) -> Result<Index> {
        let refuse = |why: String| Error::damaged(path, why);
        let sealed: Sealed = serde_json::from_slice(bytes).map_err(|error| refuse(error.to_string()))?;
        let found = crc32c::crc32c(sealed.index.to_string().as_bytes());
        if found != sealed.crc32c {
            return Err(refuse(format!("its checksum is {found:08x}, must be {:08x}", sealed.crc32c)));
        }
        // First: an index of another format may have other fields.
        let format = sealed.index["format"].as_u64().and_then(|format| u32::try_from(format).ok());
        if let Some(found) = format.filter(|format| *format != FORMAT) {
            return Err(Error::Format { file: path.to_owned(), found, must: FORMAT });
        }
        let index: Index = serde_json::from_value(sealed.index).map_err(|error| refuse(error.to_string()))?;
        index.check().map_err(refuse)?;
        Ok(index)
    }

    /// The index that one file of whole tensors would have.
    pub(crate) fn of_whole(step: u64, progress: Progress, tensors: BTreeMap<String, Tensor>) -> Index {
        Index { format: FORMAT, step, world: 1, progress, files: BTreeMap::new(), tensors }
    }

    fn check(&self) -> std::result::Result<(), String> {
        if let Some(file) = self.files.keys().find(|file| file.contains(['/', '\\']) || file.starts_with('.')) {
            return Err(format!("file {file:?} is not beside the index"));
        }
        let mut room = self.files.iter().map(|(file, seal)| (file.as_str(), seal.bytes)).collect();
        let mut tensors = self.tensors.iter();
        tensors.try_for_each(|(name, tensor)| tensor.check(&mut room).map_err(|why| format!("tensor {name}: {why}")))
    }
}

impl Tensor {
    /// That its pieces are all its elements, each in a file of its own, which has room for it beside what it holds of other tensors.
    fn check(&self, room: &mut BTreeMap<&str, u64>) -> std::result::Result<(), String> {
        let no_size = || format!("{:?} of {:?} has no size in bytes", self.dtype, self.shape);
        let (size, len) = element_len(self.dtype).zip(element_count(&self.shape)).ok_or_else(no_size)?;
        let (mut next, mut files) = (0_usize, BTreeSet::new());
        for Span { file, len, start } in &self.pieces {
            if *start != next {
                return Err(format!("element {next} is missing or twice there"));
            }
            if !files.insert(file) {
                return Err(format!("file {file:?} has two pieces of it"));
            }
            let left = room.get_mut(file.as_str()).ok_or_else(|| format!("file {file:?} is not listed"))?;
            let rest = len.checked_mul(size).and_then(|bytes| left.checked_sub(bytes as u64));
            *left = rest.ok_or_else(|| format!("file {file:?} is shorter than {len} elements of it"))?;
            next = next.checked_add(*len).ok_or("it is too long")?;
        }
        if next != len {
            return Err(format!("{next} elements, must be {len}"));
        }
        Ok(())
    }
}

/// The checksum is over the index as this program writes it, without blanks and with keys in order.
#[derive(Serialize, Deserialize)]
struct Sealed {
    crc32c: u32,
    index: Value,
}

const FORMAT: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    /// Why an index is refused that says of a file of 100 bytes that it holds one tensor of this shape.
    fn refusal(dtype: Dtype, len: usize) -> String {
        let span = Span { file: "file".to_owned(), len, start: 0 };
        let tensor = Tensor { dtype, shape: vec![len], pieces: vec![span] };
        let seal = Seal { bytes: 100, crc32c: 0 };
        let tensors = BTreeMap::from([("weight".to_owned(), tensor)]);
        let written = Written { file: "file".to_owned(), seal, tensors };
        let index = Index::of(1, Progress::new(), vec![written], Path::new("index.json"));
        index.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn no_file_holds_more_than_its_bytes() {
        assert_eq!(refusal(Dtype::F32, 25), "");
        for (dtype, len) in [(Dtype::F32, 26), (Dtype::U8, 101), (Dtype::F64, 1 << 61), (Dtype::U8, usize::MAX)] {
            let why = format!("index.json: tensor weight: file \"file\" is shorter than {len} elements of it");
            assert_eq!(refusal(dtype, len), why);
        }
    }
}
