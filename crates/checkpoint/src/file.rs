//! One safetensors file: written piece by piece with its checksum, and read as a whole and checked. Nothing of it is trusted.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::names;
use crate::piece::{Progress, byte_len};

/// What a file must be to be the one that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seal {
    pub(crate) bytes: u64,
    pub(crate) crc32c: u32,
}

/// A tensor about to be written.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
}

/// Writes a file under another name, syncs it, and gives it its own. `bytes` are asked for one tensor after the other.
pub(crate) fn write<'a>(
    disk: &dyn Disk,
    path: &Path,
    entries: &[Entry],
    metadata: Option<&Progress>,
    mut bytes: impl FnMut(usize) -> Result<Cow<'a, [u8]>>,
) -> Result<Seal> {
    let part = names::unfinished(path);
    let mut seal = Seal { bytes: 0, crc32c: 0 };
    let mut append = |bytes: &[u8]| {
        seal.bytes += bytes.len() as u64;
        seal.crc32c = crc32c::crc32c_append(seal.crc32c, bytes);
        disk.append(&part, bytes).map_err(Error::disk(&part))
    };
    disk.create(&part).map_err(Error::disk(&part))?;
    append(&header(path, entries, metadata)?)?;
    for at in 0..entries.len() {
        append(&bytes(at)?)?;
    }
    disk.sync(&part).map_err(Error::disk(&part))?;
    disk.rename(&part, path).map_err(Error::disk(path))?;
    Ok(seal)
}

fn header(path: &Path, entries: &[Entry], metadata: Option<&Progress>) -> Result<Vec<u8>> {
    let mut end = 0;
    let info = |entry: &Entry| {
        let start = end;
        end += byte_len(entry.dtype, &entry.shape)?;
        let data_offsets = (start, end);
        Some((entry.name.clone(), TensorInfo { dtype: entry.dtype, shape: entry.shape.clone(), data_offsets }))
    };
    let infos = entries.iter().map(info).collect::<Option<Vec<_>>>();
    let infos = infos.ok_or_else(|| Error::damaged(path, "a tensor to write has no size in bytes"))?;
    let metadata = metadata.map(|metadata| metadata.clone().into_iter().collect::<HashMap<_, _>>());
    let metadata = Metadata::new(metadata, infos).map_err(|error| Error::damaged(path, error.to_string()))?;
    let text = serde_json::to_string(&metadata).map_err(|error| Error::damaged(path, error.to_string()))?;
    // As everybody's: what follows begins at a multiple of 8.
    let len = text.len().next_multiple_of(8);
    Ok([&(len as u64).to_le_bytes()[..], format!("{text:len$}").as_bytes()].concat())
}

/// A file that was read and found whole.
#[derive(Debug)]
pub(crate) struct Contents {
    bytes: Vec<u8>,
    tensors: HashMap<String, Place>,
    pub(crate) metadata: HashMap<String, String>,
}

/// A tensor in a file.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    range: Range<usize>,
}

impl Contents {
    /// Reads a file, which must have this seal where there is one.
    pub(crate) fn read(disk: &dyn Disk, path: &Path, seal: Option<Seal>) -> Result<Contents> {
        let bytes = disk.read(path).map_err(Error::disk(path))?;
        if let Some(seal) = seal {
            if bytes.len() as u64 != seal.bytes {
                return Err(Error::damaged(path, format!("{} bytes, must be {}", bytes.len(), seal.bytes)));
            }
            let found = crc32c::crc32c(&bytes);
            if found != seal.crc32c {
                let why = format!("its checksum is {found:08x}, must be {:08x}", seal.crc32c);
                return Err(Error::damaged(path, why));
            }
        }
        let (header_len, header) =
            SafeTensors::read_metadata(&bytes).map_err(|error| Error::damaged(path, error.to_string()))?;
        let data = size_of::<u64>() + header_len;
        if header.data_len() != bytes.len() - data {
            return Err(Error::damaged(
                path,
                format!("{} bytes of tensors, must be {}", bytes.len() - data, header.data_len()),
            ));
        }
        let place = |(name, info): (String, &TensorInfo)| {
            let (start, end) = info.data_offsets;
            (name, Place { dtype: info.dtype, shape: info.shape.clone(), range: data + start..data + end })
        };
        let tensors = header.tensors().into_iter().map(place).collect();
        let metadata = header.metadata().clone().unwrap_or_default();
        Ok(Contents { tensors, metadata, bytes })
    }

    pub(crate) fn tensors(&self) -> impl Iterator<Item = (&str, &Place)> {
        self.tensors.iter().map(|(name, place)| (name.as_str(), place))
    }

    /// The bytes of a tensor of this type.
    pub(crate) fn tensor(&self, name: &str, dtype: Dtype) -> Option<&[u8]> {
        let place = self.tensors.get(name).filter(|place| place.dtype == dtype)?;
        self.bytes.get(place.range.clone())
    }
}
