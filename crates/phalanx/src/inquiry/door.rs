//! The doors: a socket with a name on this host, through which this user and root may come, and a TCP port.
//!
//! The host's socket is in the abstract namespace: it needs no directory that all launchers agree on, nobody can read its bytes on a disk,
//! and the kernel takes it away with its process, however that ends. Its name anybody can see and use, so both sides ask the kernel who
//! the other is.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self as unix, UnixListener, UnixStream};
use std::sync::Arc;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

/// Where visitors come in.
#[derive(Debug)]
pub(crate) enum Door {
    Host(UnixListener),
    Network(TcpListener),
}

/// What opens the door of this host anew, under another name, once the rank's place in its world has changed.
pub(crate) struct Renewal {
    /// Can be read once that may be so.
    moved: Arc<OwnedFd>,
    door: Box<dyn FnMut() -> Option<Door> + Send>,
}

/// A connection.
pub(super) trait Stream: Read + Write + AsFd + Send {}

impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// Whoever came in, and whether through the door of this host.
pub(super) type Newcomer = (Box<dyn Stream>, bool);

impl Door {
    /// A socket of this name.
    pub(crate) fn host(name: &[u8]) -> io::Result<Door> {
        let listener = UnixListener::bind_addr(&unix::SocketAddr::from_abstract_name(name)?)?;
        listener.set_nonblocking(true)?;
        Ok(Door::Host(listener))
    }

    /// A port at this address; any, where it is 0.
    pub(crate) fn network(address: SocketAddr) -> io::Result<Door> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Door::Network(listener))
    }

    /// The address, where it has one on the network.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Door::Host(_) => None,
            Door::Network(listener) => listener.local_addr().ok(),
        }
    }

    /// The next who waits outside, if anybody does. Who has no business here is sent away.
    pub(super) fn admit(&self) -> io::Result<Option<Newcomer>> {
        match self {
            Door::Host(listener) => {
                let (stream, _) = listener.accept()?;
                let uid = getsockopt(&stream, PeerCredentials)?.uid();
                if ![rustix::process::geteuid().as_raw(), ROOT].contains(&uid) {
                    log::debug!("user {uid} asked how this rank stands and was sent away");
                    return Ok(None);
                }
                stream.set_nonblocking(true)?;
                Ok(Some((Box::new(stream), true)))
            }
            Door::Network(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Some((Box::new(stream), false)))
            }
        }
    }
}

impl Renewal {
    /// `door` is asked for the new one, if there is to be any.
    pub(crate) fn new(moved: Arc<OwnedFd>, door: impl FnMut() -> Option<Door> + Send + 'static) -> Renewal {
        Renewal { moved, door: Box::new(door) }
    }

    /// The new door. It may have been asked for several times.
    pub(super) fn take(&mut self) -> Option<Door> {
        let _ = rustix::io::read(&self.moved, &mut [0; 8]);
        (self.door)()
    }
}

impl AsFd for Renewal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.moved.as_fd()
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Door::Host(listener) => listener.as_fd(),
            Door::Network(listener) => listener.as_fd(),
        }
    }
}

/// The user who may ask everybody.
const ROOT: u32 = 0;
