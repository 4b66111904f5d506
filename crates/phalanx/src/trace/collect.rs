//! The other side: whoever asks all ranks of a job for their dumps, or those of this host, and puts them into one directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use phalanx_comm::secure::JobName;
use phalanx_core::store::{Store, StoreError};
use phalanx_core::{Error, Result};
use phalanx_trace::{Dump, files};

use super::keys::{Keys, Request};
use crate::inquiry::{TRACE_PATH, ask};

/// The dumps of a job's ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collected {
    /// One file a rank that answered, in the order of ranks.
    pub files: Vec<PathBuf>,
    /// The ranks that did not answer in time: their processes have ended or are stopped, or they were told not to.
    pub silent: Vec<usize>,
    /// The ranks whose answer was no dump, and why.
    pub garbled: Vec<(usize, String)>,
}

/// Asks all ranks of a job for what they have recorded, over the store that they share, and writes it into `directory`. A rank has `patience` to
/// answer; those that wait in a call answer too.
///
/// Asked are the ranks of the job's start `epoch` that joined by [`init`](crate::init) or [`Joining`](crate::Joining) and whose
/// `PHALANX_TRACE_REQUESTS` is not 0. `told` hears of each file and silent rank as it goes.
///
/// # Errors
///
/// [`Setup`](phalanx_core::ErrorKind::Setup), where no rank of that start has said that it can be asked, the store cannot be reached or a file
/// cannot be written.
pub fn collect(
    store: &Store,
    (job, epoch): (&JobName, u32),
    directory: &Path,
    patience: Duration,
    mut told: impl FnMut(&Collected, usize),
) -> Result<Collected> {
    let keys = Keys::of_job(store, job, epoch);
    let Some(size) = keys.size()? else {
        let why = "no rank of it can be asked; a job that was started anew has a higher epoch";
        return Err(Error::setup(format!("traces of job \"{}\", epoch {epoch}", job.as_str()), why));
    };
    let request = keys.new_request()?;
    let mut collected = Collected::default();
    for first in (0..size).step_by(AT_ONCE) {
        let ranks = first..size.min(first + AT_ONCE);
        let began = Instant::now();
        let asked = ranks.clone().try_for_each(|rank| keys.ask(rank, &request));
        let heard = asked.map_err(Error::from).and_then(|()| {
            ranks.clone().try_for_each(|rank| {
                let left = patience.saturating_sub(began.elapsed());
                collected.hear(&keys.within(left.max(LEAST)), rank, &request, directory)?;
                told(&collected, size);
                Ok(())
            })
        });
        // Whatever happened: a rank that wakes up later has nobody to tell.
        let withdrawn = ranks.clone().try_for_each(|rank| keys.withdraw(rank));
        heard?;
        withdrawn?;
    }
    Ok(collected)
}

/// Asks the ranks of this host that this user may ask, as [`neighbours`](crate::neighbours) does, for what they have recorded, and writes it into
/// `directory`. They need neither an address nor a store that still answers. Where they are of several jobs, `job` says which is meant.
///
/// # Errors
///
/// [`Setup`](phalanx_core::ErrorKind::Setup), where there is no such rank, the job is not clear, or a file cannot be written.
pub fn collect_host(job: Option<&str>, directory: &Path, patience: Duration) -> Result<Collected> {
    let failed = |why: String| Error::setup("traces of this host's ranks", why);
    let mut told = ask(TRACE_PATH, patience).map_err(|error| failed(error.to_string()))?;
    told.retain(|(neighbour, _)| job.is_none_or(|job| neighbour.job == job));
    let mut jobs: Vec<&str> = told.iter().map(|(neighbour, _)| neighbour.job.as_str()).collect();
    jobs.dedup();
    match jobs[..] {
        [] => return Err(failed("there is no rank that this user may ask".to_owned())),
        [_] => {}
        _ => {
            return Err(failed(format!("they are of several jobs, of which one has to be named: {}", jobs.join(", "))));
        }
    }
    let mut collected = Collected::default();
    for (neighbour, page) in told {
        match page {
            Some(page) => collected.write(neighbour.rank, &page, directory)?,
            None => collected.silent.push(neighbour.rank),
        }
    }
    Ok(collected)
}

impl Collected {
    fn hear(&mut self, keys: &Keys, rank: usize, request: &Request, directory: &Path) -> Result<()> {
        let said = match keys.take(rank, request) {
            Err(StoreError::Timeout { .. }) => {
                self.silent.push(rank);
                return Ok(());
            }
            said => said?,
        };
        match said {
            Some(said) => self.write(rank, &said, directory),
            None => {
                self.garbled.push((rank, "its length is no dump's".to_owned()));
                Ok(())
            }
        }
    }

    /// Writes what a rank says to be its dump.
    fn write(&mut self, rank: usize, said: &[u8], directory: &Path) -> Result<()> {
        match Dump::from_json(said) {
            Ok(dump) => {
                let file = files::write(directory, &dump).map_err(|error| Error::setup("trace", error))?;
                // A process may be in one world after another: the later one's is kept.
                if self.files.last() != Some(&file) {
                    self.files.push(file);
                }
            }
            Err(broken) => self.garbled.push((rank, broken.to_string())),
        }
        Ok(())
    }
}

/// What so many ranks say has room in a store.
const AT_ONCE: usize = 64;
/// What is there already is heard even when the time is up.
const LEAST: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use phalanx_comm::store::LocalStore;

    use super::*;

    #[test]
    fn who_has_all_the_time_gets_an_answer() {
        let (store, job) = (Store::new(LocalStore::default()), JobName::default());
        let keys = Keys::of_job(&store, &job, 0);
        keys.set_size(1).unwrap();
        keys.tell(0, &"1".to_owned(), b"nonsense").unwrap();
        let collected = collect(&store, (&job, 0), Path::new("/proc/none"), Duration::MAX, |_, _| {}).unwrap();
        assert_eq!((collected.silent.len(), collected.garbled.len()), (0, 1));
    }
}
