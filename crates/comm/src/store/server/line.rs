//! The way to one client: bytes in and bytes out without waiting, in clear or sealed. What they say is not seen here.

use std::io::{self, ErrorKind, Read, Write};
use std::ops::{AddAssign, SubAssign};
use std::time::Instant;

use mio::event::Event;

use super::inbox::Inbox;
use super::outbox::Outbox;
use super::socket::Socket;
use crate::secure::{Tunnel, TunnelError};

/// A socket with what came and what is to go.
#[derive(Debug)]
pub(super) struct Line {
    /// What came and was not understood yet, in clear.
    pub(super) inbox: Inbox,
    /// What is to go, in clear.
    pub(super) outbox: Outbox,
    socket: Socket,
    /// Whether there may be more to read, and room to write. Events set these, a socket that has no more clears them.
    readable: bool,
    writable: bool,
    /// The peer said that it will send no more, and perhaps that was not read yet.
    closing: bool,
    ended: bool,
    /// How many bytes have come so far.
    came: u64,
    sealed: Option<Box<Sealed>>,
    /// Since when the socket has taken nothing of what is to go.
    stuck: Option<Instant>,
}

/// What a sealed line has besides.
#[derive(Debug)]
struct Sealed {
    tunnel: Tunnel,
    /// The beginning of a record.
    inbox: Inbox,
    /// Sealed bytes that the socket did not take yet.
    outbox: Inbox,
}

/// What a line holds, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// What came and is not understood yet.
    pub(super) unread: usize,
    /// What has not gone yet.
    pub(super) unsent: usize,
    /// Of that, what is held for this line alone.
    pub(super) own: usize,
}

impl AddAssign for Load {
    fn add_assign(&mut self, other: Load) {
        *self =
            Load { unread: self.unread + other.unread, unsent: self.unsent + other.unsent, own: self.own + other.own };
    }
}

impl SubAssign for Load {
    fn sub_assign(&mut self, other: Load) {
        *self =
            Load { unread: self.unread - other.unread, unsent: self.unsent - other.unsent, own: self.own - other.own };
    }
}

/// Why a line is of no more use.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Tunnel(#[from] TunnelError),
}

impl Line {
    pub(super) fn new(socket: Socket) -> Line {
        Line {
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            socket,
            // New sockets are tried at once: mostly the first words are there already.
            readable: true,
            writable: true,
            closing: false,
            ended: false,
            came: 0,
            sealed: None,
            stuck: None,
        }
    }

    /// Notes what the system says about the socket.
    pub(super) fn notice(&mut self, event: &Event) {
        self.closing |= event.is_read_closed() || event.is_error();
        // A broken socket tells its error to whoever uses it.
        self.readable |= event.is_readable() || self.closing;
        self.writable |= event.is_writable() || event.is_error();
    }

    pub(super) fn is_readable(&self) -> bool {
        self.readable
    }

    pub(super) fn is_writable(&self) -> bool {
        self.writable
    }

    /// How many bytes have come so far.
    pub(super) fn came(&self) -> u64 {
        self.came
    }

    /// Whether the peer has said all that it will.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether everything has gone.
    pub(super) fn is_flushed(&self) -> bool {
        self.outbox.is_empty() && self.sealed.as_ref().is_none_or(|sealed| sealed.outbox.is_empty())
    }

    /// Bytes that came and are not understood yet.
    pub(super) fn unread_byte_len(&self) -> usize {
        self.inbox.unread().len() + self.sealed.as_ref().map_or(0, |sealed| sealed.inbox.unread().len())
    }

    /// Bytes that have not gone yet.
    pub(super) fn unsent_byte_len(&self) -> usize {
        self.load().unsent
    }

    pub(super) fn load(&self) -> Load {
        let sealed = self.sealed.as_ref().map_or(0, |sealed| sealed.outbox.unread().len());
        let own = self.outbox.own_byte_len() + sealed;
        Load { unread: self.unread_byte_len(), unsent: self.outbox.byte_len() + sealed, own }
    }

    /// Since when the peer has taken nothing of what is to go.
    pub(super) fn stuck_since(&self) -> Option<Instant> {
        self.stuck
    }

    /// From here on everything goes through `tunnel`.
    pub(super) fn enter(&mut self, tunnel: Tunnel) -> Result<(), LineError> {
        if !tunnel.is_sealed() {
            return Ok(());
        }
        let mut sealed = Sealed { tunnel, inbox: Inbox::default(), outbox: Inbox::default() };
        // The answer to the handshake goes as it is.
        self.outbox.take(usize::MAX, sealed.outbox.end());
        let early = std::mem::take(&mut self.inbox);
        self.sealed = Some(Box::new(sealed));
        self.take_in(early.unread())
    }

    /// Reads once, at most as much as `scratch` holds.
    pub(super) fn receive(&mut self, scratch: &mut [u8]) -> Result<(), LineError> {
        match self.socket.read(scratch) {
            Ok(0) => {
                self.ended = true;
                self.readable = false;
            }
            Ok(len) => {
                // A short read says that there is no more, but not that the peer has closed.
                self.readable = len == scratch.len() || self.closing;
                self.came += len as u64;
                self.take_in(&scratch[..len])?;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Writes what the socket takes, within the bounds of one turn.
    pub(super) fn send(&mut self, now: Instant) -> Result<(), LineError> {
        let mut room = TURN;
        while self.writable && room > 0 && !self.is_flushed() {
            match self.write() {
                Ok(len) => {
                    self.stuck = None;
                    room = room.saturating_sub(len);
                }
                Err(LineError::Socket(error)) if error.kind() == ErrorKind::WouldBlock => {
                    self.writable = false;
                    self.stuck.get_or_insert(now);
                }
                Err(LineError::Socket(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<usize, LineError> {
        let Some(sealed) = &mut self.sealed else { return Ok(self.outbox.write_to(&mut self.socket)?) };
        sealed.fill(&mut self.outbox)?;
        let written = self.socket.write(sealed.outbox.unread())?;
        sealed.outbox.skip(written);
        Ok(written)
    }

    fn take_in(&mut self, bytes: &[u8]) -> Result<(), LineError> {
        match &mut self.sealed {
            Some(sealed) => sealed.take_in(bytes, &mut self.inbox)?,
            None => self.inbox.end().extend_from_slice(bytes),
        }
        Ok(())
    }
}

impl Sealed {
    /// Opens what is whole. What is not is kept until the rest comes.
    fn take_in(&mut self, bytes: &[u8], into: &mut Inbox) -> Result<(), TunnelError> {
        if self.inbox.is_empty() {
            let opened = self.tunnel.open(bytes, into.end())?;
            self.inbox.end().extend_from_slice(&bytes[opened..]);
        } else {
            self.inbox.end().extend_from_slice(bytes);
            let opened = self.tunnel.open(self.inbox.unread(), into.end())?;
            self.inbox.skip(opened);
        }
        Ok(())
    }

    /// Seals the next piece once the last has gone: what thousands of clients wait for is not sealed for all of them at once.
    fn fill(&mut self, from: &mut Outbox) -> Result<(), TunnelError> {
        if self.outbox.is_empty() {
            let mut piece = Vec::with_capacity(from.byte_len().min(PIECE));
            from.take(PIECE, &mut piece);
            self.tunnel.seal(&piece, self.outbox.end())?;
        }
        Ok(())
    }
}

/// The most that is written to one client in one turn.
const TURN: usize = 1 << 20;
/// How much is sealed at a time.
const PIECE: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use phalanx_core::store::wire::Sink;

    use super::*;
    use crate::secure::{Claim, ClientHandshake, ClientStep, JobKey, JobName, Plane, Session};
    use crate::secure::{ServerHandshake, ServerStep, Welcome};

    /// A line, and its other end, which waits.
    fn line() -> (Line, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (Line::new(Socket::Unix(mio::net::UnixStream::from_std(ours))), theirs)
    }

    /// Both ends of a sealed conversation.
    fn tunnels() -> (Tunnel, Tunnel) {
        let key = JobKey::mint().unwrap();
        let claim = Claim::new(JobName::default(), 0, Session::mint().unwrap());
        let mut client = ClientHandshake::new(Some(&key), &claim, Plane::Store);
        let mut server = ServerHandshake::new(Some(&key), Plane::Store);
        let Ok((_, ServerStep::Send(challenge))) = server.receive(&client.start()) else { panic!("no challenge") };
        let Ok((_, ClientStep::Send(proof))) = client.receive(&challenge) else { panic!("no proof") };
        let Ok((_, ServerStep::Claimed(claimant))) = server.receive(&proof) else { panic!("no claim") };
        let (answer, ours) = claimant.admit(&Welcome { instance: 1, epoch: 0 }).unwrap();
        let Ok((_, ClientStep::Admitted { tunnel, .. })) = client.receive(&answer) else { panic!("not admitted") };
        (ours, tunnel)
    }

    #[test]
    fn a_sealed_line_opens_what_comes_in_any_cuts() {
        let (ours, mut theirs) = tunnels();
        let (mut line, mut peer) = line();
        line.enter(ours).unwrap();
        let (mut wire, mut scratch) = (Vec::new(), [0; 512]);
        let said: Vec<u8> = (0..=255).cycle().take(1000).collect();
        said.chunks(300).for_each(|part| theirs.seal(part, &mut wire).unwrap());
        for byte in wire {
            peer.write_all(&[byte]).unwrap();
            line.readable = true;
            line.receive(&mut scratch).unwrap();
        }
        assert_eq!(line.inbox.unread(), said);
        assert_eq!(line.unread_byte_len(), said.len());
        peer.write_all(&[40, 0]).unwrap();
        peer.write_all(&[1; 40]).unwrap();
        line.readable = true;
        assert!(matches!(line.receive(&mut scratch), Err(LineError::Tunnel(TunnelError::Forged))));
    }

    #[test]
    fn the_answer_of_the_handshake_goes_before_what_is_sealed() {
        let (ours, mut theirs) = tunnels();
        let (mut line, mut peer) = line();
        line.outbox.put(b"welcome");
        line.enter(ours).unwrap();
        line.outbox.put(&[7; 50_000]);
        assert!(line.unsent_byte_len() > 50_000 && !line.is_flushed());
        line.send(Instant::now()).unwrap();
        assert!(line.is_flushed() && line.unsent_byte_len() == 0);
        drop(line);
        let (mut wire, mut opened) = (Vec::new(), Vec::new());
        peer.read_to_end(&mut wire).unwrap();
        assert_eq!(&wire[..7], b"welcome");
        assert_eq!(theirs.open(&wire[7..], &mut opened).unwrap(), wire.len() - 7);
        assert!(opened == [7; 50_000]);
    }

    #[test]
    fn a_line_is_stuck_from_when_nothing_is_taken_until_something_is() {
        let (mut line, mut peer) = line();
        let start = Instant::now();
        line.outbox.put(b"x");
        line.send(start).unwrap();
        assert!(line.is_flushed() && line.stuck_since().is_none());
        line.outbox.put(&vec![0; 4 << 20]);
        let mut now = start;
        while line.is_writable() {
            now = Instant::now();
            line.send(now).unwrap();
        }
        assert_eq!(line.stuck_since(), Some(now));
        line.writable = true;
        line.send(Instant::now()).unwrap();
        assert_eq!(line.stuck_since(), Some(now));
        peer.read_exact(&mut vec![0; 100_000]).unwrap();
        line.writable = true;
        line.send(Instant::now()).unwrap();
        assert_ne!(line.stuck_since(), Some(now));
    }

    #[test]
    fn the_end_is_seen_after_the_last_bytes() {
        let (mut line, mut peer) = line();
        peer.write_all(b"last").unwrap();
        drop(peer);
        line.closing = true;
        let mut scratch = [0; 64];
        line.receive(&mut scratch).unwrap();
        assert!(line.is_readable() && !line.has_ended());
        line.receive(&mut scratch).unwrap();
        assert!(line.has_ended() && !line.is_readable());
        assert_eq!(line.inbox.unread(), b"last");
    }
}
