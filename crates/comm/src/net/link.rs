//! Links over sockets. A link that ends says nothing of its peer's fate: that is told on the control connection.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_core::link::{Link, LinkError};
use phalanx_core::{Error, Result};
use rustix::event::epoll::EventFlags;

use super::greeting::Line;
use super::socket::{Found, Socket};
use super::standing::Standing;
use crate::bell::Bell;

/// A link over `line` to a peer with this standing, whose news rings `bell`.
pub(crate) fn link(line: Line, standing: &Arc<Standing>, bell: &Bell) -> Result<Box<dyn Link>> {
    if let Some(poller) = bell.poller() {
        let news = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP;
        poller.add(&*line.socket, 0, news).map_err(|errno| Error::setup("waiting for sockets", errno))?;
    }
    let pipe = Pipe { socket: line.socket, standing: Arc::clone(standing), ended: None };
    Ok(Box::new(PlainLink::new(pipe)))
}

/// A socket to a peer, which sends no more when this is dropped.
struct Pipe {
    socket: Arc<Socket>,
    standing: Arc<Standing>,
    /// Since when the connection has ended without a word.
    ended: Option<Instant>,
}

impl Pipe {
    fn send(&mut self, parts: [&[u8]; 2]) -> Result<usize, LinkError> {
        match self.socket.try_send(&parts.map(IoSlice::new)) {
            Found::Bytes(len) => Ok(len),
            Found::Nothing => Ok(0),
            Found::End => self.end(),
        }
    }

    fn recv(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        if into.is_empty() {
            return Ok(0);
        }
        match self.socket.try_recv(into) {
            Found::Bytes(len) => Ok(len),
            Found::Nothing => Ok(0),
            Found::End => self.end(),
        }
    }

    /// What the end of the connection means: a rank that fails closes its links, and says on the control connection of
    /// what; one that leaves has said so; and one that died is found by its control connection.
    fn end(&mut self) -> Result<usize, LinkError> {
        if self.standing.has_left() {
            return Err(LinkError::Left { rank: None });
        }
        let since = *self.ended.get_or_insert_with(Instant::now);
        if self.standing.is_lost() || since.elapsed() > GRACE {
            return Err(LinkError::Closed { rank: None });
        }
        Ok(0)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.socket.end_sending();
    }
}

/// A link whose bytes travel as they are.
struct PlainLink {
    pipe: Pipe,
    /// What came beyond what was asked for, so that a small frame takes one call of the system.
    inbox: Box<[u8]>,
    start: usize,
    end: usize,
}

impl PlainLink {
    fn new(pipe: Pipe) -> PlainLink {
        PlainLink { pipe, inbox: vec![0; INBOX].into(), start: 0, end: 0 }
    }
}

impl Link for PlainLink {
    fn try_send(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
        self.pipe.send([bytes, &[]])
    }

    fn try_send_parts(&mut self, parts: [&[u8]; 2]) -> Result<usize, LinkError> {
        self.pipe.send(parts)
    }

    fn try_recv(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        if self.start == self.end {
            if into.len() >= DIRECT {
                return self.pipe.recv(into);
            }
            (self.start, self.end) = (0, self.pipe.recv(&mut self.inbox)?);
        }
        let len = into.len().min(self.end - self.start);
        into[..len].copy_from_slice(&self.inbox[self.start..self.start + len]);
        self.start += len;
        Ok(len)
    }
}

const INBOX: usize = 8 << 10;
/// From this many bytes on a copy costs more than a call.
const DIRECT: usize = 4 << 10;
/// How long the reason for the end of a connection may take, which comes over another one.
const GRACE: Duration = Duration::from_secs(1);
