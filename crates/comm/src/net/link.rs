//! Links over sockets, whose bytes travel as they are where nothing protects them.

use std::io::IoSlice;
use std::sync::Arc;

use phalanx_core::link::{Link, LinkError};
use phalanx_core::{Error, Result};
use rustix::event::epoll::EventFlags;

use super::greeting::Line;
use super::pipe::Pipe;
use super::sealed::SealedLink;
use super::standing::Standing;
use crate::bell::Bell;
use crate::secure::Suite;

/// A link over `line` to a peer with this standing, whose news rings `bell`. Its data is in records of `suite`, if any.
pub(crate) fn link(line: Line, suite: Option<Suite>, standing: &Arc<Standing>, bell: &Bell) -> Result<Box<dyn Link>> {
    if let Some(poller) = bell.poller() {
        let news = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP;
        poller.add(&*line.socket, 0, news).map_err(|errno| Error::setup("waiting for sockets", errno))?;
    }
    let pipe = Pipe::new(line.socket, Arc::clone(standing));
    let Some(suite) = suite else { return Ok(Box::new(PlainLink::new(pipe))) };
    let odd = || Error::setup("ranks over TCP", "a connection without the secrets of a handshake");
    let keys = suite.keys(line.tunnel.secrets().ok_or_else(odd)?);
    Ok(Box::new(SealedLink::new(pipe, keys.map_err(|error| Error::setup("ranks over TCP", error))?)))
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
        self.pipe.send(&[IoSlice::new(bytes)])
    }

    fn try_send_parts(&mut self, parts: [&[u8]; 2]) -> Result<usize, LinkError> {
        let [head, body] = parts;
        let len = head.len() + body.len();
        if len > JOINED {
            return self.pipe.send(&parts.map(IoSlice::new));
        }
        let mut joined = [0; JOINED];
        joined[..head.len()].copy_from_slice(head);
        joined[head.len()..len].copy_from_slice(body);
        self.pipe.send(&[IoSlice::new(&joined[..len])])
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

/// Up to so many bytes a copy costs less than what the system does for a second part.
const JOINED: usize = 256;
const INBOX: usize = 8 << 10;
/// From this many bytes on a copy costs more than a call.
const DIRECT: usize = 4 << 10;
