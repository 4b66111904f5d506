//! The black box of a rank: how its groups failed, and its dump for whoever wants it: a directory, a signal, somebody who asks.

use std::env;
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{self, Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use phalanx_core::recorder::Recorder;
use phalanx_core::{Alarm, Error, Group, Result, Scope};
use phalanx_trace::{Dump, Identity, files};
use signal_hook::consts::SIGUSR2;
use signal_hook::iterator::{Handle, Signals};

use crate::environment::wrong;
use crate::presence::Seat;
use crate::trace::accuser::Accuser;

/// What a rank writes down of itself.
#[derive(Debug)]
pub(crate) struct BlackBox {
    /// Where it is written to when a call fails, and on a signal.
    directory: Option<PathBuf>,
    /// Known once the rank has joined.
    seat: OnceLock<Seat>,
    /// How each group stands that is there and has failed.
    verdicts: Mutex<Vec<Verdict>>,
    accuser: Accuser,
    /// Ends the thread that waits for the signal.
    signals: OnceLock<Handle>,
}

/// How a group failed: a disagreement, after which it goes on, is forgotten with the next failure, and any other stays.
#[derive(Debug)]
struct Verdict {
    /// What the group alone has, because its name may be another one's too.
    of: Weak<Recorder>,
    scope: Scope,
    words: String,
}

impl BlackBox {
    /// One that writes where the environment says. A place that cannot be written is refused now: what it is for comes too late for that.
    pub(crate) fn of_environment() -> Result<Arc<BlackBox>> {
        let directory = env::var_os(VARIABLE).filter(|directory| !directory.is_empty()).map(PathBuf::from);
        Ok(BlackBox::writing_to(directory.map(usable).transpose()?))
    }

    fn writing_to(directory: Option<PathBuf>) -> Arc<BlackBox> {
        let (verdicts, accuser) = (Mutex::default(), Accuser::default());
        Arc::new(BlackBox { directory, seat: OnceLock::new(), verdicts, accuser, signals: OnceLock::new() })
    }

    /// Begins to record this rank, and to wait for the signal.
    pub(crate) fn open(self: &Arc<BlackBox>, seat: &Seat) {
        let _ = self.seat.set(seat.clone());
        self.accuser.begin(&seat.registry);
        if self.directory.is_none() {
            return;
        }
        if let Err(error) = self.listen() {
            log::warn!("rank {} writes no trace on a signal: {error}", seat.registry.seat().0);
        }
    }

    /// Waits for the signal on a thread of its own, which ends with this.
    fn listen(self: &Arc<BlackBox>) -> io::Result<JoinHandle<()>> {
        let mut signals = Signals::new([SIGUSR2])?;
        let (own, handle) = (Arc::downgrade(self), signals.handle());
        let listen = move || {
            for _ in &mut signals {
                match own.upgrade() {
                    Some(own) => own.write(),
                    None => return,
                }
            }
        };
        let thread = thread::Builder::new().name("phalanx-trace".to_owned()).spawn(listen)?;
        let _ = self.signals.set(handle);
        Ok(thread)
    }

    /// What the rank has recorded so far; none before it has joined.
    pub(crate) fn dump(&self) -> Option<Dump> {
        let seat = self.seat.get()?;
        let verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |group: &Group| verdicts.iter().find(|verdict| verdict.is_of(group));
        Some(take(seat, |group| of(group).map(|verdict| verdict.words.clone())))
    }

    fn note(&self, group: &Group, error: &Error) {
        let new = Verdict { of: Arc::downgrade(group.recorder()), scope: error.scope(), words: error.to_string() };
        let mut verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        verdicts.retain(|verdict| verdict.of.strong_count() > 0);
        match verdicts.iter_mut().find(|verdict| verdict.is_of(group)) {
            Some(known) if known.scope == Scope::Call => *known = new,
            Some(_) => {}
            None => verdicts.push(new),
        }
    }

    fn write(&self) {
        let (Some(directory), Some(dump)) = (&self.directory, self.dump()) else { return };
        if let Err(error) = files::write(directory, &dump) {
            log::warn!("rank {} writes no trace: {error}", dump.rank);
        }
    }
}

impl Drop for BlackBox {
    fn drop(&mut self) {
        self.signals.get().into_iter().for_each(Handle::close);
    }
}

impl Alarm for BlackBox {
    fn failed(&self, group: &Group, error: &Error) {
        self.note(group, error);
        if let Some(seat) = self.seat.get() {
            self.accuser.accuse(&seat.registry, error);
        }
        self.write();
    }
}

impl Verdict {
    fn is_of(&self, group: &Group) -> bool {
        self.of.as_ptr() == Arc::as_ptr(group.recorder())
    }
}

/// What the groups of a rank have recorded; `verdict` is how a group failed.
pub(super) fn take(seat: &Seat, verdict: impl Fn(&Group) -> Option<String>) -> Dump {
    let (rank, world_size) = seat.registry.seat();
    let identity = Identity { rank, world_size, host_name: seat.host_name.clone(), pid: std::process::id() };
    let mut dump = Dump::new(identity, SystemTime::now());
    dump.met_ns = seat.registry.met_ns();
    for (formed, group) in seat.registry.groups() {
        let description = format!("over {}", formed.transport);
        dump.add(&group, formed.members, &description, verdict(&group)).generation = Some(formed.generation);
    }
    dump
}

/// The directory, made and tried, by a name that still leads to it once the program has gone elsewhere.
fn usable(directory: PathBuf) -> Result<PathBuf> {
    let refused = |error| wrong(VARIABLE, directory.display(), format_args!("cannot be written: {error}"));
    probe(&directory).map_err(refused)?;
    Ok(path::absolute(&directory).unwrap_or(directory))
}

/// Makes the directory, and tries to write there, by a name that nobody foresees: another user may have put a link under one that is known
/// before, and processes of one number on other hosts, or in other containers, try at the same time.
fn probe(directory: &Path) -> io::Result<()> {
    let file = directory.join(format!(".probe.{:016x}", RandomState::new().hash_one(std::process::id())));
    fs::create_dir_all(directory)?;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?;
    let _ = fs::remove_file(&file);
    Ok(())
}

const VARIABLE: &str = "PHALANX_TRACE_DIR";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use phalanx_comm::Threads;
    use phalanx_core::PeerReason;

    use super::*;

    #[test]
    fn a_group_has_the_verdict_it_ended_with_and_no_other_ones() {
        let black_box = BlackBox::writing_to(None);
        let [first, second] = [(); 2].map(|()| Threads::new(1).groups().expect("a world").remove(0));
        let told = |group: &Group| {
            let verdicts = black_box.verdicts.lock().unwrap();
            verdicts.iter().find(|verdict| verdict.is_of(group)).map(|verdict| verdict.words.clone())
        };
        let (wrong, dead) =
            (Error::usage("send", "to", 7, "must be less"), Error::peer(0, PeerReason::Dead, "it ended"));
        black_box.note(&first, &wrong);
        assert_eq!((told(&first), told(&second)), (Some(wrong.to_string()), None));
        black_box.note(&first, &dead);
        black_box.note(&first, &wrong);
        assert_eq!((told(&first), told(&second)), (Some(dead.to_string()), None));
        drop(first);
        black_box.note(&second, &wrong);
        assert_eq!((told(&second), black_box.verdicts.lock().unwrap().len()), (Some(wrong.to_string()), 1));
    }

    #[test]
    fn a_directory_is_found_from_every_other() {
        let place = env::temp_dir().join(format!("phalanx-black-box-{}", std::process::id()));
        // By way of the root, as seen from here.
        let up: PathBuf = env::current_dir().unwrap().iter().skip(1).map(|_| "..").collect();
        let relative = up.join(place.strip_prefix("/").unwrap());
        let found = usable(relative.clone()).unwrap();
        assert!(relative.is_relative() && found.is_absolute() && place.is_dir());
        assert_eq!(fs::canonicalize(&found).unwrap(), fs::canonicalize(&place).unwrap());
        fs::remove_dir(&place).unwrap();
    }

    #[test]
    fn a_directory_is_tried_without_writing_through_a_link_that_somebody_has_put_there() {
        let place = env::temp_dir().join(format!("phalanx-probe-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let (target, link) = (place.join("target"), place.join(format!(".probe.{}", std::process::id())));
        fs::write(&target, "precious").unwrap();
        symlink(&target, &link).unwrap();
        probe(&place).unwrap();
        assert_eq!((fs::read(&target).unwrap(), fs::read_dir(&place).unwrap().count()), (b"precious".to_vec(), 2));
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn the_thread_that_waits_for_the_signal_ends_with_its_black_box() {
        let black_box = BlackBox::writing_to(None);
        let thread = black_box.listen().unwrap();
        drop(black_box);
        thread.join().unwrap();
    }
}
