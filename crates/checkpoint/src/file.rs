//! One safetensors file: written piece by piece with its checksum, and read as a whole and checked. Nothing of it is trusted.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
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

impl Seal {
    /// That a file has the right length, which takes no reading.
    pub(crate) fn check_on(self, disk: &dyn Disk, path: &Path) -> Result<()> {
        let found = disk.byte_len(path).map_err(Error::disk(path))?;
        self.check_len(found).map_err(|why| Error::damaged(path, why))
    }

    fn check_len(self, found: u64) -> std::result::Result<(), String> {
        if found == self.bytes { Ok(()) } else { Err(format!("{found} bytes, must be {}", self.bytes)) }
    }

    fn check(self, bytes: &[u8]) -> std::result::Result<(), String> {
        self.check_len(bytes.len() as u64)?;
        let found = crc32c::crc32c(bytes);
        if found != self.crc32c {
            return Err(format!("its checksum is {found:08x}, must be {:08x}", self.crc32c));
        }
        Ok(())
    }
}

/// A tensor about to be written.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
}

/// Writes a file under another name, syncs it, and gives it its own. `bytes` are asked for one tensor after the other. What cannot be
/// finished is removed, so that a disk which is full has that room again.
pub(crate) fn write<'a>(
    disk: &dyn Disk,
    path: &Path,
    entries: &[Entry],
    metadata: Option<&Progress>,
    mut bytes: impl FnMut(usize) -> Result<Cow<'a, [u8]>>,
) -> Result<Seal> {
    let part = names::unfinished(path);
    let mut seal = Seal { bytes: 0, crc32c: 0 };
    draft(disk, &part, |append| {
        let mut append = |bytes: &[u8]| {
            seal.bytes += bytes.len() as u64;
            seal.crc32c = crc32c::crc32c_append(seal.crc32c, bytes);
            append(bytes)
        };
        append(&header(path, entries, metadata)?)?;
        (0..entries.len()).try_for_each(|at| append(&bytes(at)?))
    })?;
    disk.rename(&part, path).map_err(Error::disk(path)).inspect_err(|_| discard(disk, &part))?;
    Ok(seal)
}

/// Writes a file that has not its own name yet, and syncs it; removes it again where that fails.
pub(crate) fn draft(
    disk: &dyn Disk,
    part: &Path,
    write: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>,
) -> Result<()> {
    disk.create(part).map_err(Error::disk(part))?;
    let written = write(&mut |bytes| disk.append(part, bytes).map_err(Error::disk(part)));
    let synced = written.and_then(|()| disk.sync(part).map_err(Error::disk(part)));
    synced.inspect_err(|_| discard(disk, part))
}

/// Removes a file that nobody asks for any more. Whether it can be changes nothing of what is told.
pub(crate) fn discard(disk: &dyn Disk, path: &Path) {
    if let Err(error) = disk.remove_file(path).map_err(Error::disk(path)) {
        log::debug!("what was begun stays: {error}");
    }
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
    let mut text = serde_json::to_vec(&metadata).map_err(|error| Error::damaged(path, error.to_string()))?;
    // As everybody's: what follows begins at a multiple of 8.
    text.resize(text.len().next_multiple_of(8), b' ');
    Ok([&(text.len() as u64).to_le_bytes(), &*text].concat())
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
        if let Some(seal) = seal {
            seal.check_on(disk, path)?;
        }
        let bytes = disk.read(path).map_err(Error::disk(path))?;
        Contents::parse(path, bytes, seal)
    }

    /// The same of bytes that are there.
    pub(crate) fn parse(path: &Path, bytes: Vec<u8>, seal: Option<Seal>) -> Result<Contents> {
        let checked = seal.map_or(Ok(()), |seal| seal.check(&bytes)).and_then(|()| head(&bytes));
        let (data, header) = checked.map_err(|why| Error::damaged(path, why))?;
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

/// Where the bytes of tensors begin, and what they are. Lengths are held against each other here: `SafeTensors::read_metadata` adds them up
/// without looking whether the sum is a number.
fn head(bytes: &[u8]) -> std::result::Result<(usize, Metadata), String> {
    let (len, rest) = bytes.split_first_chunk().ok_or_else(|| format!("{} bytes, must be 8 at least", bytes.len()))?;
    let len = u64::from_le_bytes(*len);
    let split = usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len));
    let (header, data) = split.ok_or_else(|| format!("a header of {len} bytes in a file of {}", bytes.len()))?;
    let header: Metadata = serde_json::from_slice(header).map_err(|error| error.to_string())?;
    if header.data_len() != data.len() {
        return Err(format!("{} bytes of tensors, must be {}", data.len(), header.data_len()));
    }
    Ok((bytes.len() - data.len(), header))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: Vec<u8>) -> Result<Contents> {
        Contents::parse(Path::new("file"), bytes, None)
    }

    fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
    }

    #[test]
    fn what_is_not_a_file_of_tensors_is_refused() {
        let one = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
        assert_eq!(parse(with_header(one, &[0; 4])).expect("a file").tensor("a", Dtype::F32), Some(&[0; 4][..]));
        let refused = |bytes| parse(bytes).expect_err("refused").to_string();
        assert!(refused(vec![]).contains("0 bytes") && refused(vec![0; 7]).contains("7 bytes"));
        assert!(refused(vec![255; 20]).contains("a header of 18446744073709551615 bytes"));
        assert!(refused(with_header(one, &[0; 3])).contains("3 bytes of tensors, must be 4"));
        assert!(refused(with_header(one, &[0; 5])).contains("5 bytes of tensors, must be 4"));
    }

    /// Each of these is of a length that is a number, and so are all together.
    #[test]
    fn lengths_whose_sum_overflows_are_refused() {
        let tensor = |at: u64| {
            let (start, len) = (at * LONGEST, if at == 8 { 7 } else { LONGEST });
            format!(r#""{at}":{{"dtype":"U8","shape":[{len}],"data_offsets":[{start},{}]}}"#, start + len)
        };
        let header = format!("{{{}}}", (0..9).map(tensor).collect::<Vec<_>>().join(","));
        let refused = parse(with_header(&header, &[0; 4])).expect_err("refused").to_string();
        assert!(refused.contains("4 bytes of tensors, must be 18446744073709551615"), "{refused}");
    }

    const LONGEST: u64 = (1 << 61) - 1;
}
