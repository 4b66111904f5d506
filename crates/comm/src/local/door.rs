//! Where the ranks of one host meet: a Unix socket, its name, and who may come through. Not what is said there.

use std::fmt;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use phalanx_core::{Error, Result};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};
use rustix::process::{Pid, geteuid};

/// The place where the ranks of one host meet.
///
/// The lowest rank opens the door, the others come through it. Only processes of the same user are let in, and only with
/// the group's token. All must see each other's process numbers, as they do unless containers keep them apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Door {
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Name(String),
    Path(PathBuf),
}

impl Door {
    /// A name in the abstract namespace of sockets, at most 107 bytes, which leaves nothing behind. It must be the group's
    /// own: another process that has it first keeps the group from meeting.
    pub fn named(name: impl Into<String>) -> Door {
        Door { place: Place::Name(name.into()) }
    }

    /// A path, at most 107 bytes, in a directory that only this user may enter (mode 0700). It is removed after the
    /// meeting, and before it if it is a socket that a killed run left there.
    pub fn at(path: impl Into<PathBuf>) -> Door {
        Door { place: Place::Path(path.into()) }
    }

    /// Opens the door, for at most this many at a time.
    pub(super) fn open(&self, backlog: usize) -> Result<OpenDoor> {
        let mut path = None;
        if let Place::Path(at) = &self.place {
            check_directory(at)?;
            remove_leftover(at, &self.address()?);
            path = Some(at.clone());
        }
        let socket = socket().map_err(|errno| self.failed(errno))?;
        bind(&socket, &self.address()?).map_err(|errno| self.failed(errno))?;
        let door = OpenDoor { socket, path };
        listen(&door.socket, backlog as i32).map_err(|errno| self.failed(errno))?;
        Ok(door)
    }

    /// Comes through the door, as soon as the rank of this number has opened it.
    pub(super) fn enter(&self, host: usize, deadline: Instant) -> Result<OwnedFd> {
        let address = self.address()?;
        let mut pause = FIRST_PAUSE;
        loop {
            let socket = socket().map_err(|errno| self.failed(errno))?;
            match connect(&socket, &address) {
                Ok(()) => return self.checked(socket),
                Err(Errno::CONNREFUSED | Errno::NOENT | Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(self.failed(errno)),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::absent("local ranks", format!("rank {host} did not open {self}"), vec![host]));
            }
            // No event tells that a socket begins to listen.
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn checked(&self, socket: OwnedFd) -> Result<OwnedFd> {
        let why = match Peer::of(&socket) {
            Peer::Ours(_) => return Ok(socket),
            Peer::Elsewhere => format!("{self} was opened in another PID namespace"),
            Peer::Stranger => format!("another user opened {self}"),
        };
        Err(Error::setup("local ranks", why))
    }

    fn address(&self) -> Result<SocketAddrUnix> {
        let address = match &self.place {
            Place::Name(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            Place::Path(path) => SocketAddrUnix::new(path),
        };
        address.map_err(|errno| self.failed(errno))
    }

    fn failed(&self, errno: Errno) -> Error {
        Error::setup(self.to_string(), errno)
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Name(name) => write!(f, "the socket @{name}"),
            Place::Path(path) => write!(f, "the socket {}", path.display()),
        }
    }
}

/// A door that is open until this is dropped.
pub(super) struct OpenDoor {
    pub(super) socket: OwnedFd,
    path: Option<PathBuf>,
}

impl OpenDoor {
    /// Whoever waits to come in, and who that is; nobody where the next has gone again. What stands in the way is this
    /// process's own.
    pub(super) fn admit(&self) -> Result<Option<(OwnedFd, Peer)>, Errno> {
        match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => {
                let peer = Peer::of(&socket);
                Ok(Some((socket, peer)))
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl Drop for OpenDoor {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// This process of the same user.
    Ours(Pid),
    /// A process of the same user that has no number here, because it is in another PID namespace.
    Elsewhere,
    /// Another user, or nobody any more.
    Stranger,
}

impl Peer {
    pub(super) fn of(socket: &OwnedFd) -> Peer {
        // rustix knows no process 0, which is what one of another namespace is called.
        match getsockopt(socket, PeerCredentials) {
            Ok(peer) if peer.uid() == geteuid().as_raw() => Peer::numbered(peer.pid()),
            _ => Peer::Stranger,
        }
    }

    fn numbered(number: i32) -> Peer {
        Pid::from_raw(number).map_or(Peer::Elsewhere, Peer::Ours)
    }
}

/// A socket that keeps messages apart, so that each comes whole.
fn socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

fn check_directory(path: &Path) -> Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let what = || format!("the directory {}", directory.display());
    let found = fs::metadata(directory).map_err(|error| Error::setup(what(), error))?;
    if found.uid() != geteuid().as_raw() {
        return Err(Error::setup(what(), "it belongs to another user"));
    }
    if found.mode() & 0o077 != 0 {
        return Err(Error::setup(what(), format!("its mode is {:o}, others may enter", found.mode() & 0o777)));
    }
    Ok(())
}

/// Removes a socket that nobody listens at any more.
fn remove_leftover(path: &Path, address: &SocketAddrUnix) {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let is_dead = || socket().and_then(|socket| connect(socket, address)) == Err(Errno::CONNREFUSED);
    if is_socket && is_dead() {
        let _ = fs::remove_file(path);
    }
}

const FIRST_PAUSE: Duration = Duration::from_micros(500);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use rustix::net::socketpair;
    use rustix::process::getpid;

    use super::*;

    #[test]
    fn a_process_without_a_number_here_is_told_from_one_of_another_user() {
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (here, _there) = pair.expect("a pair");
        assert_eq!(Peer::of(&here), Peer::Ours(getpid()));
        assert_eq!((Peer::numbered(getpid().as_raw_pid()), Peer::numbered(0)), (Peer::Ours(getpid()), Peer::Elsewhere));
        let file = fs::File::open("Cargo.toml").expect("the manifest of this crate");
        assert_eq!(Peer::of(&file.into()), Peer::Stranger);
    }
}
