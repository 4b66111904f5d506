//! The lobby: the directory of this user where notices are put up and looked for.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::{Error, Result};

use super::notice::Found;
use super::{Notice, Posted};

/// The place for the notice of one job's epoch.
#[derive(Debug)]
pub(crate) struct Lobby {
    path: PathBuf,
}

impl Lobby {
    /// The lobby of `name` in this user's own directory, which is made where there is none.
    pub(crate) fn of_this_user(name: &str) -> Result<Lobby> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let runtime = runtime.filter(|path| path.is_absolute() && path.is_dir());
        let own = || std::env::temp_dir().join(format!("phalanx-{}", rustix::process::geteuid().as_raw()));
        Lobby::within(&runtime.map_or_else(own, |path| path.join("phalanx")), name)
    }

    pub(crate) fn within(directory: &Path, name: &str) -> Result<Lobby> {
        check(directory).map_err(|error| trouble(directory, error))?;
        Ok(Lobby { path: directory.join(name) })
    }

    /// Puts up `notice`. One of a dead process gives way; one of a process that lives belongs to another job of this name.
    pub(crate) fn post(&self, notice: &Notice) -> Result<Posted> {
        for _ in 0..ATTEMPTS {
            match notice.post(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.clear()?,
                posted => return posted.map_err(|error| trouble(&self.path, error)),
            }
        }
        Err(trouble(&self.path, "other jobs of this name are being started at this moment"))
    }

    /// Waits for a notice of a process that lives, with growing pauses: directories tell no events across their kinds.
    pub(crate) fn find(&self, timeout: Duration) -> Result<Notice> {
        let (began, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            match Notice::read(&self.path).map_err(|error| trouble(&self.path, error))? {
                Some(Found { notice, is_believed: true }) => return Ok(notice),
                _ if began.elapsed() >= timeout => break,
                _ => thread::sleep(pause.min(timeout.saturating_sub(began.elapsed()))),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        let advice = "ranks that no one process has started need a PHALANX_JOB, the same for all";
        let why =
            format!("rank 0 did not come within {timeout:?}: no notice of it at {}; {advice}", self.path.display());
        Err(Error::absent("joining the world", why, vec![0]))
    }

    /// Takes down the notice of a dead process.
    fn clear(&self) -> Result<()> {
        let found = Notice::read(&self.path).map_err(|error| trouble(&self.path, error))?;
        let Some(Found { notice, is_believed }) = found else { return Ok(()) };
        if is_believed {
            let (pid, file) = (notice.writer.pid, self.path.display());
            let advice = format!("if it has ended and left its notice behind, remove {file}");
            return Err(trouble(&self.path, format!("process {pid} is starting another job of this name; {advice}")));
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(trouble(&self.path, error)),
            _ => Ok(()),
        }
    }
}

/// Makes the directory where there is none, and refuses one that others could write or read.
fn check(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let data = fs::symlink_metadata(directory)?;
    let ours = data.is_dir() && data.uid() == rustix::process::geteuid().as_raw() && data.mode() & 0o077 == 0;
    let foreign = "must be a directory that belongs to this user and is open to nobody else (mode 0700)";
    if ours { Ok(()) } else { Err(io::Error::new(io::ErrorKind::PermissionDenied, foreign)) }
}

fn trouble(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::setup(format!("meeting at {}", path.display()), why)
}

const ATTEMPTS: usize = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lobby::writer::Writer;
    use phalanx_comm::secure::JobKey;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A directory of a test's own, removed at its end.
    struct Directory(PathBuf);

    impl Directory {
        fn new() -> Directory {
            static NUMBER: AtomicUsize = AtomicUsize::new(0);
            let name = format!("phalanx-lobby-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
            Directory(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn notice(port: u16, began: u64) -> Notice {
        let mut writer = Writer::this_process();
        writer.began = writer.began.wrapping_add(began);
        let address = phalanx_comm::store::StoreAddress::tcp("127.0.0.1", port);
        Notice { address, key: JobKey::mint().unwrap(), writer }
    }

    #[test]
    fn a_notice_is_found_while_it_hangs() {
        let directory = Directory::new();
        let lobby = Lobby::within(&directory.0, "job.0").unwrap();
        thread::scope(|scope| {
            let reader = scope.spawn(|| lobby.find(Duration::from_secs(60)).unwrap());
            let posted = lobby.post(&notice(7, 0)).unwrap();
            assert_eq!(reader.join().unwrap().address.to_string(), "127.0.0.1:7");
            drop(posted);
        });
        let error = lobby.find(Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("need a PHALANX_JOB"), "{error}");
        assert!(matches!(error, Error::Setup(setup) if setup.missing == [0]));
        assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 0);
    }

    #[test]
    fn the_notice_of_a_dead_process_is_not_believed_and_gives_way() {
        let directory = Directory::new();
        let lobby = Lobby::within(&directory.0, "job.0").unwrap();
        std::mem::forget(lobby.post(&notice(7, 1)).unwrap());
        assert!(lobby.find(Duration::ZERO).is_err());
        let posted = lobby.post(&notice(8, 0)).unwrap();
        assert_eq!(lobby.find(Duration::ZERO).unwrap().address.to_string(), "127.0.0.1:8");
        let error = lobby.post(&notice(9, 0)).unwrap_err().to_string();
        assert!(error.contains("is starting another job of this name"), "{error}");
        drop(posted);
    }

    #[test]
    fn a_notice_of_another_namespace_is_believed_for_as_long_as_it_is_held() {
        let directory = Directory::new();
        let lobby = Lobby::within(&directory.0, "job.0").unwrap();
        let mut foreign = notice(7, 0);
        foreign.writer.namespace = "pid:[1]".to_owned();
        let posted = lobby.post(&foreign).unwrap();
        assert_eq!(lobby.find(Duration::ZERO).unwrap().address.to_string(), "127.0.0.1:7");
        let error = lobby.post(&notice(8, 0)).unwrap_err().to_string();
        let advice = format!(
            "is starting another job of this name; if it has ended and left its notice behind, remove {}",
            lobby.path.display()
        );
        assert!(error.contains(&advice), "{error}");

        // As its poster leaves it when it is killed: nobody takes the file down, and nobody holds it.
        let left = fs::read(&lobby.path).unwrap();
        drop(posted);
        fs::write(&lobby.path, left).unwrap();
        fs::set_permissions(&lobby.path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(lobby.find(Duration::ZERO).is_err());
        let _posted = lobby.post(&notice(8, 0)).unwrap();
        assert_eq!(lobby.find(Duration::ZERO).unwrap().address.to_string(), "127.0.0.1:8");
    }

    #[test]
    fn jobs_of_other_names_do_not_meet() {
        let directory = Directory::new();
        let lobbies = ["a.0", "a.1"].map(|name| Lobby::within(&directory.0, name).unwrap());
        let _posted = lobbies[0].post(&notice(7, 0)).unwrap();
        assert!(lobbies[1].find(Duration::ZERO).is_err());
    }

    #[test]
    fn what_others_could_have_written_is_refused() {
        let directory = Directory::new();
        let lobby = Lobby::within(&directory.0, "job.0").unwrap();
        assert_eq!(fs::metadata(&directory.0).unwrap().mode() & 0o777, 0o700);

        let posted = lobby.post(&notice(7, 0)).unwrap();
        assert_eq!(fs::metadata(&lobby.path).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&lobby.path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = lobby.find(Duration::from_secs(60)).unwrap_err().to_string();
        assert!(error.contains("not a file that this user alone can read"), "{error}");
        drop(posted);

        fs::write(&lobby.path, "something else").unwrap();
        fs::set_permissions(&lobby.path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(lobby.find(Duration::from_secs(60)).unwrap_err().to_string().contains("not a notice"));
        assert!(lobby.post(&notice(8, 0)).is_err());

        fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o755)).unwrap();
        let error = Lobby::within(&directory.0, "job.0").unwrap_err().to_string();
        assert!(error.contains("open to nobody else"), "{error}");
    }

    #[test]
    fn a_link_to_a_directory_is_none() {
        let (real, link) = (Directory::new(), Directory::new());
        fs::create_dir(&real.0).unwrap();
        fs::set_permissions(&real.0, fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink(&real.0, &link.0).unwrap();
        assert!(Lobby::within(&link.0, "job.0").is_err());
        fs::remove_file(&link.0).unwrap();
    }
}
