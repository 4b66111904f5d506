//! A socket with the bytes that came over it and were not used yet. While it sends it also reads, so that neither side
//! waits for the other to make room.

use std::time::Instant;

use super::socket::{Received, Socket};
use super::trouble::Trouble;

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
                0 => self.make_room(until)?,
                len => *sent += len,
            }
        }
        Ok(())
    }

    /// Reads what comes next; false when nothing came by `until`.
    pub(super) fn fill(&mut self, until: Instant) -> Result<bool, Trouble> {
        loop {
            match self.read()? {
                Received::Bytes(_) => return Ok(true),
                Received::End => return Err(Trouble::end()),
                Received::Nothing if self.wait(false, until)? => {}
                Received::Nothing => return Ok(false),
            }
        }
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
        if !self.wait(true, until)? {
            return Err(Trouble::Late);
        }
        if self.read()? == Received::End { Err(Trouble::end()) } else { Ok(()) }
    }

    fn read(&mut self) -> Result<Received, Trouble> {
        if self.inbox.capacity() - self.inbox.len() < CHUNK {
            self.inbox.reserve(CHUNK);
        }
        self.socket.receive(&mut self.inbox).map_err(|error| Trouble::io(&error))
    }

    fn wait(&self, sending: bool, until: Instant) -> Result<bool, Trouble> {
        self.socket.ready(sending, until).map_err(|error| Trouble::io(&error))
    }
}

/// The least room for a read, in bytes.
const CHUNK: usize = 4 << 10;
/// The largest buffer that an idle connection keeps, in bytes.
const KEPT: usize = 64 << 10;
