//! One TCP socket that never blocks, and the waits of a meeting, each of which ends at a given moment. Not what is said.

use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, SocketType};

use super::retry::limit_pauses;

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Socket {
    descriptor: OwnedFd,
}

/// What a look at a socket found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// As many bytes came or went.
    Bytes(usize),
    /// Nothing came, or there is no room.
    Nothing,
    /// The peer sends no more, or takes no more.
    End,
}

impl Socket {
    /// Connects to `to`, or fails at `until`.
    pub(super) fn connect(to: SocketAddr, until: Instant) -> io::Result<Socket> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = Socket { descriptor: net::socket_with(family, SocketType::STREAM, flags, None)? };
        match net::connect(&socket.descriptor, &to) {
            // Interrupted or not, it goes on in the background.
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        socket.wait(PollFlags::OUT, until)?;
        net::sockopt::socket_error(&socket.descriptor)??;
        Socket::prepared(socket.descriptor)
    }

    /// A connected socket that a listener accepted, which does not block.
    pub(super) fn prepared(descriptor: OwnedFd) -> io::Result<Socket> {
        net::sockopt::set_tcp_nodelay(&descriptor, true)?;
        limit_pauses(&descriptor, PAUSE);
        let socket = Socket { descriptor };
        if socket.ends().is_ok_and(stay_on_host) {
            // Where the system does not allow it, its own choice takes longer.
            let _ = net::sockopt::set_tcp_congestion(&socket.descriptor, PLAIN);
        }
        Ok(socket)
    }

    /// Hands over as many bytes of `parts`, one after the other, as there is room for now.
    pub(crate) fn try_send(&self, parts: &[IoSlice<'_>]) -> Found {
        loop {
            let sent = match parts {
                [whole] => net::send(&self.descriptor, whole, SendFlags::NOSIGNAL),
                _ => {
                    let mut nothing = SendAncillaryBuffer::default();
                    net::sendmsg(&self.descriptor, parts, &mut nothing, SendFlags::NOSIGNAL)
                }
            };
            match sent {
                Ok(len) => return Found::Bytes(len),
                Err(Errno::AGAIN) => return Found::Nothing,
                Err(Errno::INTR) => {}
                Err(_) => return Found::End,
            }
        }
    }

    /// Fills the front of `into`, which is not empty, with what has come.
    pub(crate) fn try_recv(&self, into: &mut [u8]) -> Found {
        loop {
            match net::recv(&self.descriptor, &mut *into, RecvFlags::empty()) {
                Ok((0, _)) => return Found::End,
                Ok((len, _)) => return Found::Bytes(len),
                Err(Errno::AGAIN) => return Found::Nothing,
                Err(Errno::INTR) => {}
                Err(_) => return Found::End,
            }
        }
    }

    /// Sends all of `bytes` by `until`.
    pub(super) fn send_all(&self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_send(&[IoSlice::new(bytes)]) {
                Found::Bytes(len) => bytes = &bytes[len..],
                Found::Nothing => self.wait(PollFlags::OUT, until)?,
                Found::End => return Err(ErrorKind::UnexpectedEof.into()),
            }
        }
        Ok(())
    }

    /// Appends to `inbox` what comes next, at most `most` bytes, by `until`.
    pub(super) fn recv_some(&self, inbox: &mut Vec<u8>, most: usize, until: Instant) -> io::Result<()> {
        let len = inbox.len();
        inbox.resize(len + most, 0);
        let came = loop {
            match self.try_recv(&mut inbox[len..]) {
                Found::Bytes(came) => break Ok(came),
                Found::End => break Err(ErrorKind::UnexpectedEof.into()),
                Found::Nothing => {
                    if let Err(error) = self.wait(PollFlags::IN, until) {
                        break Err(error);
                    }
                }
            }
        };
        inbox.truncate(len + *came.as_ref().unwrap_or(&0));
        came.map(drop)
    }

    /// Tells the peer that no more comes.
    pub(crate) fn end_sending(&self) {
        // It fails where the connection is gone, which the peer sees as well.
        let _ = net::shutdown(&self.descriptor, Shutdown::Write);
    }

    /// Whether something has come that was not taken yet.
    pub(super) fn has_input(&self) -> bool {
        wait_any(&[(self.as_fd(), PollFlags::IN)], Instant::now()).is_ok_and(|came| came.is_some())
    }

    /// Ends it in both directions, whoever waits for it.
    pub(super) fn close(&self) {
        let _ = net::shutdown(&self.descriptor, Shutdown::Both);
    }

    /// Whether the peer has ended its side and all that it sent is here, or the connection is broken.
    pub(super) fn has_ended(&self) -> bool {
        wait_any(&[(self.as_fd(), PollFlags::RDHUP)], Instant::now()).map_or(true, |ended| ended.is_some())
    }

    /// The addresses at which the two sides have each other.
    pub(super) fn ends(&self) -> io::Result<[SocketAddr; 2]> {
        let (ours, theirs) = (net::getsockname(&self.descriptor)?, net::getpeername(&self.descriptor)?);
        let theirs = theirs.ok_or(ErrorKind::NotConnected)?;
        Ok([SocketAddr::try_from(ours)?, SocketAddr::try_from(theirs)?])
    }

    fn wait(&self, wanted: PollFlags, until: Instant) -> io::Result<()> {
        wait_any(&[(self.as_fd(), wanted)], until)?.map(drop).ok_or_else(|| ErrorKind::TimedOut.into())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Whether what passes between these never comes to a network.
fn stay_on_host([ours, theirs]: [SocketAddr; 2]) -> bool {
    ours.ip() == theirs.ip() || (ours.ip().is_loopback() && theirs.ip().is_loopback())
}

/// Waits until one of these has what is wanted of it, and says which is the first that has; none when `until` came before.
pub(super) fn wait_any(wanted: &[(BorrowedFd<'_>, PollFlags)], until: Instant) -> io::Result<Option<usize>> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut polled: Vec<PollFd<'_>> = wanted.iter().map(|(fd, flags)| PollFd::new(fd, *flags)).collect();
        match poll(&mut polled, Timespec::try_from(left).ok().as_ref()) {
            Ok(0) if left > Duration::ZERO => {}
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(polled.iter().position(|polled| !polled.revents().is_empty())),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// How long a system that tries again may pause during an outage: it tries at about 1.4 and 2.6 s then, before the outage is a
/// failure. Nothing bounds how long bytes may stay untaken: who is silent is given up by the keepers, and who is busy has time.
const PAUSE: Duration = Duration::from_millis(1200);
/// The plainest control of congestion, which every system has. On one host there is none to be controlled, but others, as BBR, which is the
/// choice of many systems, spread over time what could go at once.
const PLAIN: &str = "reno";

#[cfg(test)]
pub(super) mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;

    use super::*;

    /// A connection: the test's end, and ours.
    pub(in crate::net) fn pair() -> (TcpStream, Arc<Socket>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let theirs = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (ours, _) = listener.accept().expect("it came");
        ours.set_nonblocking(true).expect("a socket");
        (theirs, Arc::new(Socket::prepared(ours.into()).expect("a socket")))
    }

    #[test]
    fn nothing_holds_back_what_stays_on_the_host() {
        let until = Instant::now() + Duration::from_secs(60);
        for host in ["127.0.0.1", "127.0.0.2"] {
            let listener = TcpListener::bind((host, 0)).expect("a free port");
            let ours = Socket::connect(listener.local_addr().expect("bound"), until).expect("it listens");
            let theirs = Socket::prepared(listener.accept().expect("it connects").0.into()).expect("connected");
            for socket in [&ours, &theirs] {
                let found = net::sockopt::tcp_congestion(&socket.descriptor).expect("it has one");
                let is_allowed = net::sockopt::set_tcp_congestion(&socket.descriptor, PLAIN).is_ok();
                assert!(!is_allowed || found == PLAIN, "{found} at {host}");
            }
        }
        let at = |host: &str| SocketAddr::new(host.parse().expect("an address"), 1);
        assert!(stay_on_host([at("10.0.0.7"), at("10.0.0.7")]) && stay_on_host([at("::1"), at("::1")]));
        assert!(!stay_on_host([at("10.0.0.7"), at("10.0.0.8")]) && !stay_on_host([at("127.0.0.1"), at("10.0.0.8")]));
    }
}
