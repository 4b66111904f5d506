//! The other side: whoever asks all ranks of a job for their dumps, and puts them into one directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use phalanx_comm::secure::JobName;
use phalanx_core::store::{Store, StoreError};
use phalanx_core::{Error, Result};
use phalanx_trace::{Dump, files};

use super::keys::{Keys, Request};

/// The dumps of a job's ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collected {
    /// One file a rank that answered, in the order of ranks.
    pub files: Vec<PathBuf>,
    /// The ranks that did not answer in time: their processes have ended or are stopped, or they were told not to.
    pub silent: Vec<usize>,
    /// The ranks whose answer was no dump, or longer than one may be, and why.
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
    let (mut collected, mut longest, mut next, mut most) = (Collected::default(), 0, 0, FIRST);
    while next < size {
        let (ranks, known_silent) = (next..size.min(next + most), collected.silent.len());
        next = ranks.end;
        let mut unheard: BTreeSet<usize> = ranks.clone().collect();
        let began = Instant::now();
        let asked = ranks.clone().try_for_each(|rank| keys.ask(rank, &request));
        let heard = asked.map_err(Error::from).and_then(|()| {
            ranks.clone().try_for_each(|rank| {
                let left = patience.saturating_sub(began.elapsed());
                let said = collected.hear(&keys.within(left.max(LEAST)), rank, &request, directory)?;
                if let Some(byte_len) = said {
                    unheard.remove(&rank);
                    longest = longest.max(byte_len);
                }
                told(&collected, size);
                Ok(())
            })
        });
        // Whatever happened: a rank that wakes up later has nobody to tell, and what one has told by then would take the job's room for good.
        let withdrawn = ranks.clone().try_for_each(|rank| keys.withdraw(rank));
        let cleared = unheard.iter().try_for_each(|rank| keys.clear(*rank, &request));
        heard?;
        withdrawn?;
        cleared?;
        let is_all_silent = collected.silent.len() - known_silent == ranks.len();
        most = if is_all_silent { MOST.min(2 * most) } else { at_once(longest) };
    }
    Ok(collected)
}

/// How many ranks are asked together, once the longest dump so far had this many bytes: dumps of a job are much alike. Those after ranks that were
/// all silent are twice as many, because each time costs all the patience there is where a whole host is lost; not the most at once, because the
/// next may be the first whose dumps are long, and whoever finds no room in time is silent too.
fn at_once(longest: usize) -> usize {
    ROOM.checked_div(longest).map_or(FIRST, |ranks| ranks.clamp(1, MOST))
}

impl Collected {
    /// Waits for what a rank says; how long that is, where it was taken.
    fn hear(&mut self, keys: &Keys, rank: usize, request: &Request, directory: &Path) -> Result<Option<usize>> {
        let said = match keys.take(rank, request) {
            Err(StoreError::Timeout { .. }) => {
                self.silent.push(rank);
                return Ok(None);
            }
            said => said?,
        };
        match &said {
            Some(said) => self.write(rank, Dump::from_json(said), directory)?,
            None => self.garbled.push((rank, "it is longer than a dump may be, or than the store takes".to_owned())),
        }
        Ok(said.map(|said| said.len()))
    }

    /// Writes what a rank says to be its dump.
    pub(super) fn write(&mut self, rank: usize, said: Result<Dump, impl ToString>, directory: &Path) -> Result<()> {
        match said {
            Ok(dump) => {
                let file = files::write(directory, &dump).map_err(|error| Error::setup("trace", error))?;
                self.files.push(file);
            }
            Err(why) => self.garbled.push((rank, why.to_string())),
        }
        Ok(())
    }
}

/// How many ranks are asked before anything is known of their dumps, and at most.
const FIRST: usize = 8;
const MOST: usize = 64;
/// What those who are asked may say together, in bytes: a quarter of what a store takes that is not told otherwise, because the job needs it too.
const ROOM: usize = 64 << 20;
/// What is there already is heard even when the time is up.
const LEAST: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use phalanx_comm::store::LocalStore;
    use phalanx_core::store::Limits;

    use super::*;

    #[test]
    fn who_has_all_the_time_gets_an_answer() {
        let (store, job) = (Store::new(LocalStore::default()), JobName::default());
        let keys = Keys::of_job(&store, &job, 0);
        keys.set_size(1).unwrap();
        let request = "1".to_owned();
        keys.ask(0, &request).unwrap();
        keys.tell(0, &request, b"nonsense").unwrap();
        let collected = collect(&store, (&job, 0), Path::new("/proc/none"), Duration::MAX, |_, _| {}).unwrap();
        assert_eq!((collected.silent.len(), collected.garbled.len()), (0, 1));
    }

    #[test]
    fn a_rank_that_has_told_a_part_is_silent_and_leaves_nothing() {
        let (store, job) = (Store::new(LocalStore::default()), JobName::default());
        let keys = Keys::of_job(&store, &job, 0);
        keys.set_size(2).unwrap();
        // The second of its pieces, as of a rank that was stopped before it could tell the first, and what no rank says.
        let own = phalanx_comm::rendezvous::service_keys(&store, &job, 0, "traces");
        own.set("told/1/0/1", "the second piece").unwrap();
        own.set("told/1/1/0", u32::MAX.to_le_bytes()).unwrap();
        let collected = collect(&store, (&job, 0), Path::new("/proc/none"), LEAST, |_, _| {}).unwrap();
        assert_eq!((&collected.silent[..], collected.garbled.len()), (&[0][..], 1));
        assert_eq!(own.list_keys().unwrap(), ["number", "size"]);
    }

    /// All together they say twice as much as the store takes.
    #[test]
    fn the_ranks_of_a_large_job_are_heard_over_a_store_that_has_no_room_for_all() {
        const RANKS: usize = 32;
        let store = Store::new(LocalStore::new(Limits::default().total(64 << 20).unshared()));
        let job = JobName::default();
        let keys = Keys::of_job(&store, &job, 0);
        keys.set_size(RANKS).unwrap();
        let (said, is_over) = (vec![b' '; 4_400_000], AtomicBool::new(false));
        let answer = |rank: usize| {
            while !is_over.load(Ordering::Relaxed) {
                match keys.asked(rank).unwrap() {
                    Some(request) if keys.tell(rank, &request, &said).unwrap() => return,
                    _ => thread::yield_now(),
                }
            }
        };
        let collected = thread::scope(|scope| {
            (0..RANKS).for_each(|rank| drop(scope.spawn(move || answer(rank))));
            let patience = Duration::from_secs(60);
            let collected = collect(&store, (&job, 0), Path::new("/proc/none"), patience, |_, _| {});
            is_over.store(true, Ordering::Relaxed);
            collected.unwrap()
        });
        assert_eq!((collected.silent.len(), collected.garbled.len()), (0, RANKS));
        assert_eq!(store.num_keys().unwrap(), 2);
    }

    #[test]
    fn a_job_of_silent_ranks_is_asked_in_ever_larger_parts() {
        let (store, job) = (Store::new(LocalStore::default()), JobName::default());
        Keys::of_job(&store, &job, 0).set_size(2 * FIRST + 4).unwrap();
        let own = phalanx_comm::rendezvous::service_keys(&store, &job, 0, "traces");
        let mut asked = vec![];
        let collected = collect(&store, (&job, 0), Path::new("/proc/none"), LEAST, |_, _| {
            asked.push(own.list_keys().unwrap().iter().filter(|key| key.starts_with("asked/")).count());
        });
        assert_eq!(collected.unwrap().silent.len(), 2 * FIRST + 4);
        assert_eq!(asked, [[FIRST; FIRST].as_slice(), &[FIRST + 4; FIRST + 4]].concat());
    }

    #[test]
    fn so_many_ranks_are_asked_that_what_they_say_has_room() {
        assert_eq!([0, 1, 1 << 20, 4_400_000, ROOM, 4 * ROOM].map(at_once), [8, 64, 64, 15, 1, 1]);
    }

    #[test]
    fn who_asks_a_job_that_nobody_has_is_told_to_look_at_its_name_and_epoch() {
        let (store, job) = (Store::new(LocalStore::default()), JobName::default());
        let none = collect(&store, (&job, 0), Path::new("/proc/none"), LEAST, |_, _| {}).unwrap_err().to_string();
        assert!(none.contains("another name (`job`)") && none.contains("a higher epoch (`epoch`)"), "{none}");
    }
}
