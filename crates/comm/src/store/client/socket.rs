//! One socket, whose every wait ends at a given moment. TCP or Unix: the same from here on.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::moment::left;

/// Where a socket leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A connected socket that never blocks.
#[derive(Debug)]
pub(super) struct Socket {
    descriptor: OwnedFd,
}

/// What a read found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// As many bytes.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The peer sends no more.
    End,
}

impl Socket {
    /// Connects to `place`, or fails at `until`.
    pub(super) fn connect(place: &Place, until: Instant) -> io::Result<Socket> {
        let family = match place {
            Place::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Place::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            Place::Unix(_) => AddressFamily::UNIX,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = Socket { descriptor: net::socket_with(family, SocketType::STREAM, flags, None)? };
        let begun = match place {
            Place::Tcp(address) => {
                socket.be_prompt()?;
                net::connect(&socket.descriptor, address)
            }
            Place::Unix(path) => net::connect(&socket.descriptor, &SocketAddrUnix::new(path)?),
        };
        match begun {
            Ok(()) => Ok(socket),
            // Interrupted or not, it goes on in the background.
            Err(Errno::INPROGRESS | Errno::INTR) => socket.connected(until),
            Err(error) => Err(error.into()),
        }
    }

    /// The user at the other end of a Unix socket: whoever listens there.
    pub(super) fn server(&self) -> io::Result<u32> {
        // rustix knows no process 0, which is what the server of another container is called here.
        Ok(getsockopt(&self.descriptor, PeerCredentials)?.uid())
    }

    /// Hands over as many of `bytes` as there is room for now, perhaps none.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match net::send(&self.descriptor, bytes, SendFlags::NOSIGNAL) {
                Ok(len) => return Ok(len),
                Err(Errno::AGAIN) => return Ok(0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Appends to `inbox` what has come, as far as it has room.
    pub(super) fn receive(&self, inbox: &mut Vec<u8>) -> io::Result<Received> {
        loop {
            match net::recv(&self.descriptor, spare_capacity(inbox), RecvFlags::empty()) {
                Ok((0, _)) => return Ok(Received::End),
                Ok((len, _)) => return Ok(Received::Bytes(len)),
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until there is something to read where `reading`, or room to send where `sending`; false when `until` came first.
    pub(super) fn ready(&self, reading: bool, sending: bool, until: Instant) -> io::Result<bool> {
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, reading);
        wanted.set(PollFlags::OUT, sending);
        Ok(!self.poll(wanted, until)?.is_empty())
    }

    /// Whether there is nothing to read, not even the end.
    pub(super) fn is_quiet(&self) -> bool {
        self.poll(PollFlags::IN, Instant::now()).is_ok_and(|seen| seen.is_empty())
    }

    fn connected(self, until: Instant) -> io::Result<Socket> {
        if self.poll(PollFlags::OUT, until)?.is_empty() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        sockopt::socket_error(&self.descriptor)??;
        Ok(self)
    }

    /// Small requests go at once, and a host that vanished is noticed within half a minute: by a connection that waits,
    /// because the kernel asks whether it is there, and by one that sends, because nobody takes what it sent.
    fn be_prompt(&self) -> io::Result<()> {
        sockopt::set_tcp_nodelay(&self.descriptor, true)?;
        sockopt::set_socket_keepalive(&self.descriptor, true)?;
        sockopt::set_tcp_keepidle(&self.descriptor, Duration::from_secs(15))?;
        sockopt::set_tcp_keepintvl(&self.descriptor, Duration::from_secs(5))?;
        sockopt::set_tcp_keepcnt(&self.descriptor, 3)?;
        Ok(sockopt::set_tcp_user_timeout(&self.descriptor, UNTAKEN)?)
    }

    fn poll(&self, wanted: PollFlags, until: Instant) -> io::Result<PollFlags> {
        loop {
            let mut polled = [PollFd::new(&self.descriptor, wanted)];
            let time = Timespec::try_from(left(until)).ok();
            match poll(&mut polled, time.as_ref()) {
                Ok(0) if time.is_some() => return Ok(PollFlags::empty()),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(polled[0].revents()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// How long the server may leave bytes untaken before the kernel gives it up, in milliseconds.
const UNTAKEN: u32 = 30_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moment;

    #[test]
    fn a_host_that_takes_nothing_is_given_up() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::Tcp(listener.local_addr().unwrap());
        let socket = Socket::connect(&place, moment::after(Duration::from_secs(20))).unwrap();
        assert_eq!(sockopt::tcp_user_timeout(&socket.descriptor).unwrap(), 30_000);
    }

    #[test]
    fn the_user_who_listens_is_known() {
        let path = std::env::temp_dir().join(format!("phalanx-served-{}", std::process::id()));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let socket = Socket::connect(&Place::Unix(path.clone()), moment::after(Duration::from_secs(20)));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(socket.unwrap().server().unwrap(), rustix::process::geteuid().as_raw());
        drop(listener);
    }
}
