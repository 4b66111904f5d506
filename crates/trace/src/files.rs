//! Dumps in a directory: one file a rank, whose name ends in the rank. The one room with I/O.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::dump::Dump;
use crate::error::{Broken, Error};
use crate::pickle::Limits;
use crate::torch::{self, Messages};

/// The dumps of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// Those of the newest world, in the order of ranks, and those that do not say of which world they are.
    pub dumps: Vec<Dump>,
    /// The files with those of earlier starts of the job, or of its world before it changed: they tell nothing of what happened now.
    pub earlier: Vec<PathBuf>,
}

/// Reads all dumps of a directory, ours and PyTorch's: files named `<prefix><rank>` or `<prefix><rank>.json`, in any mix. Other
/// files are passed over, and so are dumps of worlds before the newest.
///
/// # Errors
///
/// Names the directory or the file, and what is wrong with it and where.
pub fn read_directory(directory: &Path) -> Result<Found, Error> {
    let files = files(directory)?;
    if files.is_empty() {
        return Err(Error::NoDumps(directory.to_owned()));
    }
    if files.len() > MOST_FILES {
        return Err(Error::TooMany { path: directory.to_owned(), count: files.len(), limit: MOST_FILES });
    }
    let all = files.into_iter().map(|path| Ok((read(&path)?, path))).collect::<Result<Vec<_>, Error>>()?;
    let newest = all.iter().filter_map(|(dump, _)| dump.met_ns).max();
    let (mut dumps, mut earlier): (BTreeMap<usize, (PathBuf, Dump)>, _) = (BTreeMap::new(), Vec::new());
    for (dump, path) in all {
        if dump.met_ns.is_some() && dump.met_ns != newest {
            earlier.push(path);
            continue;
        }
        agree(&dumps, &path, &dump)?;
        dumps.insert(dump.rank, (path, dump));
    }
    Ok(Found { dumps: dumps.into_values().map(|(_, dump)| dump).collect(), earlier })
}

/// Whether there is a file in a directory that is named like a dump.
///
/// # Errors
///
/// Names the directory and what the system said.
pub fn holds_dumps(directory: &Path) -> Result<bool, Error> {
    files(directory).map(|files| !files.is_empty())
}

/// Reads one dump, ours or PyTorch's.
///
/// # Errors
///
/// Names the file, and what is wrong with it and where.
pub fn read(path: &Path) -> Result<Dump, Error> {
    let bytes = bytes(path)?;
    let dump = match bytes.first() {
        None => Err(Broken::Empty),
        Some(0x80) => torch::decode(&bytes, rank_of(path).unwrap_or_default(), &Limits::default()),
        Some(b'{' | b' ' | b'\n') => Dump::from_json(&bytes),
        Some(other) => Err(Broken::Unknown(*other)),
    };
    dump.map_err(|broken| Error::Broken { path: path.to_owned(), broken })
}

/// Writes a dump into a directory as `trace_<rank>.json`, and returns the file's path. A file of that name is replaced whole.
///
/// # Errors
///
/// Names the file and what the system said.
pub fn write(directory: &Path, dump: &Dump) -> Result<PathBuf, Error> {
    put(directory, &format!("{PREFIX}{}.json", dump.rank), dump.to_json().as_bytes())
}

/// Writes a dump into a directory as PyTorch's analyser reads it, `trace_<rank>`, and returns the file's path.
///
/// # Errors
///
/// Names the file and what the system said.
pub fn write_torch(directory: &Path, dump: &Dump, messages: Messages) -> Result<PathBuf, Error> {
    put(directory, &format!("{PREFIX}{}", dump.rank), &torch::encode(dump, messages))
}

/// Whoever reads at the same time finds the old file or the new one, never a part. Of what cannot be written whole nothing
/// stays: where a disk is full, it would keep it so.
fn put(directory: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf, Error> {
    let path = directory.join(name);
    let said = |cause| Error::Io { path: path.clone(), cause };
    let part = directory.join(format!(".{name}.part"));
    fs::create_dir_all(directory).map_err(said)?;
    let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, &path));
    written.inspect_err(|_| drop(fs::remove_file(&part))).map_err(said)?;
    Ok(path)
}

fn files(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let said = |cause| Error::Io { path: directory.to_owned(), cause };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(said)? {
        let path = entry.map_err(said)?.path();
        if rank_of(&path).is_some() && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The rank that a file is of by its name, if it is named like a dump.
fn rank_of(path: &Path) -> Option<usize> {
    let name = path.file_name()?.to_str()?;
    let stem = name.strip_suffix(".json").unwrap_or(name);
    let digits = stem.len() - stem.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    stem[stem.len() - digits..].parse().ok().filter(|_| !name.starts_with('.'))
}

/// The file, unless it is longer than any dump: what grows while it is read is cut too.
fn bytes(path: &Path) -> Result<Vec<u8>, Error> {
    let said = |cause: io::Error| Error::Io { path: path.to_owned(), cause };
    let file = File::open(path).map_err(said)?;
    let byte_len = file.metadata().map_err(said)?.len();
    if byte_len > LONGEST {
        return Err(Error::TooLong { path: path.to_owned(), byte_len, limit: LONGEST });
    }
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes).map_err(said)?;
    Ok(bytes)
}

/// Whether a dump can stand beside those that were read.
fn agree(dumps: &BTreeMap<usize, (PathBuf, Dump)>, path: &Path, dump: &Dump) -> Result<(), Error> {
    let (rank, second) = (dump.rank, path.to_owned());
    if let Some((first, _)) = dumps.get(&rank) {
        return Err(Error::Twice { rank, first: first.clone(), second });
    }
    // Only ours know the size of the world; PyTorch's know the groups that were used.
    let Some(theirs) = dump.world_size.filter(|_| dump.taken_ns.is_some()) else { return Ok(()) };
    let other = dumps.values().filter(|(_, dump)| dump.taken_ns.is_some());
    let other = other.filter_map(|(path, dump)| Some((path, dump.world_size?))).find(|(_, size)| *size != theirs);
    other.map_or(Ok(()), |(first, ours)| Err(Error::Mixed { first: first.clone(), ours, second, theirs }))
}

/// What our dumps are called before the rank.
const PREFIX: &str = "trace_";
/// As much as a pickle may be.
const LONGEST: u64 = 256 << 20;
/// More than any job has.
const MOST_FILES: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_leaves_nothing() {
        let directory = std::env::temp_dir().join(format!("phalanx-files-{}", std::process::id()));
        // A directory has the place of the dump.
        fs::create_dir_all(directory.join("trace_0.json/x")).unwrap();
        assert!(put(&directory, "trace_0.json", b"{}").is_err());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
    }
}
