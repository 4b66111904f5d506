//! Dumps in a directory: one file a rank, whose name ends in the rank. The one room with I/O.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::dump::Dump;
use crate::error::{Broken, Error};
use crate::pickle::Limits;
use crate::torch::{self, Messages};

/// The dumps of a directory.
#[derive(Debug)]
#[non_exhaustive]
pub struct Found {
    /// Those of the newest world, in the order of ranks, and those that do not say of which world they are.
    pub dumps: Vec<Dump>,
    /// The files with those of earlier starts of the job, or of its world before it changed: they tell nothing of what happened now.
    pub earlier: Vec<PathBuf>,
    /// Of each file that is named and begins like a dump and cannot be read, cut short for example, which it is and why.
    pub unread: Vec<Error>,
}

/// Reads all dumps of a directory, ours and PyTorch's: files named `<prefix><rank>` or `<prefix><rank>.json`, in any mix. Files
/// that are named otherwise or begin otherwise are passed over, and so are dumps of worlds before the newest. What cannot be
/// read costs none of the others.
///
/// # Errors
///
/// Names the directory or the file, and what is wrong with it and where, when no dump at all can be read or two do not belong
/// together.
pub fn read_directory(directory: &Path) -> Result<Found, Error> {
    let files = files(directory)?;
    if files.len() > MOST_FILES {
        return Err(Error::TooMany { path: directory.to_owned(), count: files.len(), limit: MOST_FILES });
    }
    let (mut all, mut others, mut unread) = (Vec::new(), Vec::new(), Vec::new());
    for path in files {
        match read(&path) {
            Ok(dump) => all.push((dump, path)),
            Err(error) if is_of_another_kind(&error) => others.push(error),
            Err(error) => unread.push(error),
        }
    }
    if all.is_empty() {
        let why = unread.into_iter().chain(others).next();
        return Err(why.unwrap_or_else(|| Error::NoDumps(directory.to_owned())));
    }
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
    Ok(Found { dumps: dumps.into_values().map(|(_, dump)| dump).collect(), earlier, unread })
}

/// Whether there is a file in a directory that is named like a dump, and does not begin like something else.
///
/// # Errors
///
/// Names the directory and what the system said.
pub fn holds_dumps(directory: &Path) -> Result<bool, Error> {
    let is_other = |path: &PathBuf| open(path).is_err_and(|error| is_of_another_kind(&error));
    Ok(!files(directory)?.iter().all(is_other))
}

/// Reads one dump, ours or PyTorch's.
///
/// # Errors
///
/// Names the file, and what is wrong with it and where.
pub fn read(path: &Path) -> Result<Dump, Error> {
    let (form, file) = open(path)?;
    let bytes = bytes(path, file)?;
    let dump = match form {
        Form::Pickle => torch::decode(&bytes, rank_of(path).unwrap_or_default(), &Limits::default()),
        Form::Json => Dump::from_json(&bytes),
    };
    dump.map_err(|broken| Error::Broken { path: path.to_owned(), broken })
}

/// Writes a dump into a directory as `trace_<rank>.json`, and returns the file's path. A file of that name is replaced whole. Nobody but this
/// user can read it.
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
    // Groups of one rank may fail at the same time, each in a thread of its own.
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut file = create(&part).map_err(said)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&part, &path));
    written.inspect_err(|_| drop(fs::remove_file(&part))).map_err(said)?;
    Ok(path)
}

/// A new file that this user alone can read. What has its name is left of a process that was ended meanwhile, or a link that another user has
/// put there: nothing is written through it.
fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
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

/// How a dump is written.
enum Form {
    Pickle,
    Json,
}

/// A file that begins like a dump, from its beginning. What else is called so (`core.4711`, `train.log.1`) may be of any length,
/// and no more of it is read.
fn open(path: &Path) -> Result<(Form, BufReader<File>), Error> {
    let said = |cause: io::Error| Error::Io { path: path.to_owned(), cause };
    let mut file = BufReader::new(File::open(path).map_err(said)?);
    let form = match file.fill_buf().map_err(said)?.first() {
        None => Err(Broken::Empty),
        Some(0x80) => Ok(Form::Pickle),
        Some(b'{' | b' ' | b'\n') => Ok(Form::Json),
        Some(other) => Err(Broken::Unknown(*other)),
    };
    let form = form.map_err(|broken| Error::Broken { path: path.to_owned(), broken })?;
    Ok((form, file))
}

/// Whether a file is no dump that went wrong, and something else.
fn is_of_another_kind(error: &Error) -> bool {
    matches!(error, Error::Broken { broken: Broken::Unknown(_), .. })
}

/// The file, unless it is longer than any dump: what grows while it is read is cut too.
fn bytes(path: &Path, file: BufReader<File>) -> Result<Vec<u8>, Error> {
    let said = |cause: io::Error| Error::Io { path: path.to_owned(), cause };
    let byte_len = file.get_ref().metadata().map_err(said)?.len();
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
/// The longest file that is read, in bytes: as much as a pickle may be.
pub const LONGEST: u64 = 256 << 20;
/// More than any job has.
const MOST_FILES: usize = 1 << 16;
/// Whoever has it writes.
static TURN: Mutex<()> = Mutex::new(());

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::thread;
    use std::time::SystemTime;

    use super::*;
    use crate::dump::Identity;

    /// A directory with the dumps of these ranks of three.
    fn dumps(name: &str, ranks: &[usize]) -> PathBuf {
        let directory = scratch(name);
        fs::create_dir_all(&directory).unwrap();
        for &rank in ranks {
            let identity = Identity { rank, world_size: 3, host_name: "host".to_owned(), pid: 7 };
            write(&directory, &Dump::new(identity, SystemTime::UNIX_EPOCH)).unwrap();
        }
        directory
    }

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("phalanx-files-{name}-{}", std::process::id()))
    }

    /// What is called like a dump and is none: a core, longer than any dump, and a log.
    fn litter(directory: &Path) {
        let core = File::create(directory.join("core.4711")).unwrap();
        core.set_len(LONGEST + 1).unwrap();
        fs::write(directory.join("train.log.1"), "step 1\n").unwrap();
    }

    /// What is said of a directory of which nothing can be read, without the directory.
    fn refused(directory: &Path) -> String {
        let told = read_directory(directory).unwrap_err().to_string();
        told.replace(directory.to_str().unwrap(), "DIR")
    }

    #[test]
    fn a_dump_that_is_cut_short_is_named_and_costs_no_other() {
        let directory = dumps("cut", &[0, 1, 2]);
        let whole = fs::read(directory.join("trace_1.json")).unwrap();
        fs::write(directory.join("trace_1.json"), &whole[..whole.len() / 2]).unwrap();
        let found = read_directory(&directory).unwrap();
        assert_eq!(found.dumps.iter().map(|dump| dump.rank).collect::<Vec<_>>(), [0, 2]);
        let [why] = &found.unread[..] else { panic!("{found:?}") };
        assert!(why.to_string().contains("trace_1.json: line 1, column "), "{why}");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn files_that_begin_like_no_dump_are_passed_over() {
        let directory = dumps("litter", &[0, 1]);
        litter(&directory);
        let found = read_directory(&directory).unwrap();
        assert_eq!((found.dumps.len(), found.unread.len()), (2, 0));
        // Who names such a file is told what it is.
        let named = read(&directory.join("core.4711")).unwrap_err().to_string();
        assert!(named.ends_with("core.4711: begins with byte 0x00: neither a pickle (0x80) nor JSON ('{')"), "{named}");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_directory_of_which_nothing_can_be_read_is_refused_by_what_is_most_like_a_dump() {
        let directory = dumps("nothing", &[]);
        assert!(refused(&directory).starts_with("DIR: no dumps; "), "{}", refused(&directory));
        litter(&directory);
        assert!(refused(&directory).starts_with("DIR/core.4711: begins with byte 0x00: "), "{}", refused(&directory));
        assert!(!holds_dumps(&directory).unwrap());
        fs::write(directory.join("trace_0"), b"\x80\x02}X\x04\x00\x00\x00ent").unwrap();
        assert_eq!(refused(&directory), "DIR/trace_0: byte 11: the pickle ends here, before it is whole");
        assert!(holds_dumps(&directory).unwrap());
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing() {
        let directory = scratch("write");
        // A directory has the place of the dump.
        fs::create_dir_all(directory.join("trace_0.json/x")).unwrap();
        assert!(put(&directory, "trace_0.json", b"{}").is_err());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn nothing_is_written_through_a_link_that_somebody_has_put_there() {
        let directory = dumps("link", &[]);
        let target = directory.join("target");
        fs::write(&target, "precious").unwrap();
        symlink(&target, directory.join(".trace_0.json.part")).unwrap();
        let path = put(&directory, "trace_0.json", b"{}").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"precious");
        let data = fs::symlink_metadata(&path).unwrap();
        assert_eq!((data.is_file(), data.mode() & 0o777, fs::read(&path).unwrap()), (true, 0o600, b"{}".to_vec()));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_an_ended_process_has_left_is_in_nobodys_way() {
        let directory = dumps("leftover", &[]);
        fs::write(directory.join(".trace_0.json.part"), "a longer part of a dump").unwrap();
        let path = put(&directory, "trace_0.json", b"{}").unwrap();
        assert_eq!((fs::read(path).unwrap(), fs::read_dir(&directory).unwrap().count()), (b"{}".to_vec(), 1));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn threads_that_write_one_dump_at_the_same_time_all_do() {
        let directory = dumps("threads", &[]);
        let often = || (0..50).for_each(|_| drop(put(&directory, "trace_0.json", b"{}").unwrap()));
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(often))));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
    }
}
