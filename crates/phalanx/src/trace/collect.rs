//! The other side: whoever asks all ranks of a job for their dumps, and puts them into one directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use phalanx_comm::secure::JobName;
use phalanx_core::store::{Store, StoreError};
use phalanx_core::{Error, Result};
use phalanx_trace::{Broken, Dump, files};

use super::keys::{Keys, Request};

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
    /// The ranks that were not asked, because they are not on this host. [`collect()`] asks those of all hosts.
    pub elsewhere: Vec<usize>,
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
        let why = "no rank of it can be asked: the job may have another name (`job`), and one that was started anew has \
                   a higher epoch (`epoch`)";
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
            Some(said) => self.write(rank, Dump::from_json(&said), directory),
            None => {
                self.garbled.push((rank, "its length is no dump's".to_owned()));
                Ok(())
            }
        }
    }

    /// Writes what a rank says to be its dump.
    pub(super) fn write(&mut self, rank: usize, said: Result<Dump, Broken>, directory: &Path) -> Result<()> {
        match said {
            Ok(dump) => {
                let file = files::write(directory, &dump).map_err(|error| Error::setup("trace", error))?;
                self.files.push(file);
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

    #[test]
    fn who_asks_a_job_that_nobody_has_is_told_to_look_at_its_name_and_epoch() {
        let (store, job) = (Store::new(LocalStore::default()), JobName::default());
        let none = collect(&store, (&job, 0), Path::new("/proc/none"), LEAST, |_, _| {}).unwrap_err().to_string();
        assert!(none.contains("another name (`job`)") && none.contains("a higher epoch (`epoch`)"), "{none}");
    }
}
