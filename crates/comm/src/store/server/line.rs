//! The way to one client: bytes in and bytes out without waiting, in clear or sealed. What they say is not seen here.

use std::io::{self, ErrorKind, Read, Write};
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
    sealed: Option<Box<Sealed>>,
    /// When bytes last went, or nothing waited to go.
    moved: Instant,
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

/// Why a line is of no more use.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Tunnel(#[from] TunnelError),
}

impl Line {
    pub(super) fn new(socket: Socket, now: Instant) -> Line {
        Line {
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            socket,
            // New sockets are tried at once: mostly the first words are there already.
            readable: true,
            writable: true,
            closing: false,
            ended: false,
            sealed: None,
            moved: now,
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
        self.outbox.byte_len() + self.sealed.as_ref().map_or(0, |sealed| sealed.outbox.unread().len())
    }

    /// Since when bytes have been waiting to go and none went.
    pub(super) fn stuck_since(&self) -> Instant {
        self.moved
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
                    self.moved = now;
                    room = room.saturating_sub(len);
                }
                Err(LineError::Socket(error)) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(LineError::Socket(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.is_flushed() {
            self.moved = now;
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
