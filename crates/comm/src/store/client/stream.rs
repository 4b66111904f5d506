//! A socket with the bytes that came over it and were not used yet. While it sends it also reads, so that neither side
//! waits for the other to make room.

use std::time::Instant;

use super::socket::{Received, Socket};
use super::trouble::Trouble;
use crate::moment::left;

/// A byte stream to a server.
#[derive(Debug)]
pub(super) struct Stream {
    socket: Socket,
    inbox: Vec<u8>,
}

impl Stream {
    pub(super) fn new(socket: Socket) -> Stream {
        Stream { socket, inbox: Vec::new() }
    }

    /// Sends all of `bytes` by `until`. `sent` says how many went, also where it fails.
    pub(super) fn send(&mut self, bytes: &[u8], until: Instant, sent: &mut usize) -> Result<(), Trouble> {
        *sent = 0;
        while *sent < bytes.len() {
            match self.socket.send(&bytes[*sent..]).map_err(|error| Trouble::io(&error))? {
                // A server that goes on sending does not buy more time.
                0 if left(until).is_zero() => return Err(Trouble::Late),
                0 => self.make_room(until)?,
                len => *sent += len,
            }
        }
        Ok(())
    }

    /// Reads what comes next, once; false when nothing came by `until`. What has come already is read however late it is.
    pub(super) fn fill(&mut self, until: Instant) -> Result<bool, Trouble> {
        loop {
            match self.read()? {
                Received::Bytes(_) => return Ok(true),
                Received::End => return Err(Trouble::end()),
                Received::Nothing if self.wait(true, false, until)? => {}
                Received::Nothing => return Ok(false),
            }
        }
    }

    /// Reads what has come already, as far as it is not too much to keep and `until` has not passed.
    pub(super) fn drain(&mut self, until: Instant) {
        while self.has_room() && matches!(self.fill(Instant::now()), Ok(true)) && !left(until).is_zero() {}
    }

    /// What came and was not used yet.
    pub(super) fn inbox(&self) -> &[u8] {
        &self.inbox
    }

    /// Forgets the first `len` bytes that came.
    pub(super) fn used(&mut self, len: usize) {
        self.inbox.drain(..len);
        if self.inbox.is_empty() && self.inbox.capacity() > KEPT {
            self.inbox = Vec::new();
        }
    }

    /// Whether nothing came that nobody asked for, not even the end.
    pub(super) fn is_quiet(&self) -> bool {
        self.socket.is_quiet()
    }

    fn make_room(&mut self, until: Instant) -> Result<(), Trouble> {
        let reading = self.has_room();
        if !self.wait(reading, true, until)? {
            return Err(Trouble::Late);
        }
        if reading && self.read()? == Received::End { Err(Trouble::end()) } else { Ok(()) }
    }

    /// Whether what came is still in proportion: no answer is so long that comes before its request is sent.
    fn has_room(&self) -> bool {
        self.inbox.len() < AHEAD
    }

    fn read(&mut self) -> Result<Received, Trouble> {
        if self.inbox.capacity() - self.inbox.len() < CHUNK {
            self.inbox.reserve(CHUNK);
        }
        self.socket.receive(&mut self.inbox).map_err(|error| Trouble::io(&error))
    }

    fn wait(&self, reading: bool, sending: bool, until: Instant) -> Result<bool, Trouble> {
        self.socket.ready(reading, sending, until).map_err(|error| Trouble::io(&error))
    }
}

/// The least room for a read, in bytes.
const CHUNK: usize = 4 << 10;
/// The most that is kept of what comes while a request is sent, in bytes: the rest waits with the system.
const AHEAD: usize = 1 << 20;
/// The largest buffer that an idle connection keeps, in bytes.
const KEPT: usize = 64 << 10;
