//! Links over sockets, whose bytes travel as they are where nothing protects them.

use std::io::IoSlice;
use std::sync::Arc;

use phalanx_core::link::{Link, LinkError};
use phalanx_core::{Error, Fingerprint, Result};
use phalanx_mem::{Buffer, PROCESSOR_LINE};
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
    let Some(suite) = suite else { return Ok(Box::new(PlainLink::new(pipe)?)) };
    let odd = || Error::setup("ranks over TCP", "a connection without the secrets of a handshake");
    let keys = suite.keys(line.tunnel.secrets().ok_or_else(odd)?);
    Ok(Box::new(SealedLink::new(pipe, keys.map_err(|error| Error::setup("ranks over TCP", error))?)))
}

/// A link whose bytes travel as they are, but for a gap between a head and the long body that it leads.
///
/// The system copies what is sent into pages of its own, one behind the other, and from there to whoever receives it. Between places that
/// are not as far from the start of a line a copy takes up to twice as long, above all to a core that shares no cache. Where nothing is
/// under way a frame begins with such a page, and the gap brings its body as far from a line there as it is in the sender's memory.
struct PlainLink {
    pipe: Pipe,
    /// The gap behind the last head, and how much of it is still to be sent.
    gap: Gap,
    unsent: usize,
    /// How much of a gap is still to come behind the head that came, once that is known.
    to_skip: Option<usize>,
    /// What came beyond what was asked for, so that a small frame takes one call of the system.
    inbox: Buffer,
    start: usize,
    end: usize,
}

/// Bytes that nobody reads behind the first one, which says how many they are.
struct Gap([u8; LONGEST]);

impl Gap {
    /// The one behind a head and before this body.
    fn before(body: &[u8]) -> Gap {
        let mut bytes = [0; LONGEST];
        bytes[0] = (SHORTEST + body.as_ptr().addr() % PROCESSOR_LINE) as u8;
        Gap(bytes)
    }

    fn bytes(&self) -> &[u8] {
        &self.0[..self.0[0].into()]
    }
}

impl PlainLink {
    fn new(pipe: Pipe) -> Result<PlainLink> {
        let inbox = Buffer::try_zeroed(INBOX).map_err(|error| Error::setup("receiving over TCP", error))?;
        Ok(PlainLink { pipe, gap: Gap::before(&[]), unsent: 0, to_skip: None, inbox, start: 0, end: 0 })
    }

    /// Sends what is left of a gap; whether nothing is.
    fn close_gap(&mut self) -> Result<bool, LinkError> {
        if self.unsent > 0 {
            let gap = self.gap.bytes();
            self.unsent -= self.pipe.send(&[IoSlice::new(&gap[gap.len() - self.unsent..])])?;
        }
        Ok(self.unsent == 0)
    }

    /// Passes over what is left of the gap behind the head that came; whether nothing is.
    fn skip_gap(&mut self) -> Result<bool, LinkError> {
        while self.to_skip != Some(0) {
            if self.start == self.end && self.refill()? == 0 {
                return Ok(false);
            }
            let to_skip = match self.to_skip {
                Some(to_skip) => to_skip,
                None => length(self.inbox.as_bytes()[self.start])?,
            };
            let len = to_skip.min(self.end - self.start);
            (self.start, self.to_skip) = (self.start + len, Some(to_skip - len));
        }
        Ok(true)
    }

    /// Receives into the inbox, which is empty; how much came.
    fn refill(&mut self) -> Result<usize, LinkError> {
        (self.start, self.end) = (0, self.pipe.recv(self.inbox.as_bytes_mut())?);
        Ok(self.end)
    }
}

/// How long a gap is of which this is the first byte.
fn length(first: u8) -> Result<usize, LinkError> {
    match usize::from(first) {
        len @ 1..=LONGEST => Ok(len),
        len => Err(LinkError::corrupt(None, format!("a gap of {len} bytes, must be 1 to {LONGEST}"))),
    }
}

impl Link for PlainLink {
    fn try_send(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
        if self.close_gap()? { self.pipe.send(&[IoSlice::new(bytes)]) } else { Ok(0) }
    }

    fn try_send_parts(&mut self, parts: [&[u8]; 2]) -> Result<usize, LinkError> {
        let [head, body] = parts;
        let len = head.len() + body.len();
        if head.is_empty() {
            return self.try_send(body);
        }
        if len > JOINED {
            return self.pipe.send(&parts.map(IoSlice::new));
        }
        let mut joined = [0; JOINED];
        joined[..head.len()].copy_from_slice(head);
        joined[head.len()..len].copy_from_slice(body);
        self.pipe.send(&[IoSlice::new(&joined[..len])])
    }

    fn try_send_led(&mut self, head: &[u8], body: &[u8]) -> Result<usize, LinkError> {
        self.gap = Gap::before(body);
        let gap = self.gap.bytes();
        let sent = self.pipe.send(&[head, gap, body].map(IoSlice::new))?;
        let of_gap = sent.saturating_sub(head.len()).min(gap.len());
        self.unsent = if sent < head.len() { 0 } else { gap.len() - of_gap };
        Ok(sent - of_gap)
    }

    fn try_recv(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        if self.start == self.end {
            if into.len() >= DIRECT {
                return self.pipe.recv(into);
            }
            self.refill()?;
        }
        let len = into.len().min(self.end - self.start);
        into[..len].copy_from_slice(&self.inbox.as_bytes()[self.start..self.start + len]);
        self.start += len;
        Ok(len)
    }

    fn try_recv_led(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let came = if self.skip_gap()? { self.try_recv(into)? } else { 0 };
        if came > 0 {
            self.to_skip = None;
        }
        Ok(came)
    }
}

/// The gap that brings a body a line behind the start of its frame.
const SHORTEST: usize = PROCESSOR_LINE - Fingerprint::BYTE_LEN;
const LONGEST: usize = SHORTEST + PROCESSOR_LINE - 1;
/// Up to so many bytes a copy costs less than what the system does for a second part.
const JOINED: usize = 256;
const INBOX: usize = 8 << 10;
/// From this many bytes on a copy costs more than a call.
const DIRECT: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::thread;

    use phalanx_core::link::LONG_BODY;

    use super::*;
    use crate::net::socket::tests::pair;

    /// A link, and the test's end of its wire.
    fn end() -> (PlainLink, TcpStream) {
        let (wire, socket) = pair();
        (PlainLink::new(Pipe::new(socket, Arc::new(Standing::default()))).expect("memory"), wire)
    }

    /// A frame as it is on the wire.
    fn framed(head: &[u8], body: &[u8]) -> Vec<u8> {
        [head, Gap::before(body).bytes(), body].concat()
    }

    /// Sends the rest of a frame of which `done` bytes have gone, as whoever has a link does.
    fn send(link: &mut PlainLink, head: &[u8], body: &[u8], mut done: usize) {
        while done < head.len() + body.len() {
            let (head, body) = (&head[done.min(head.len())..], &body[done.saturating_sub(head.len())..]);
            let sent = if head.is_empty() { link.try_send_parts([head, body]) } else { link.try_send_led(head, body) };
            done += sent.expect("open");
        }
    }

    #[test]
    fn a_long_body_is_as_far_from_a_line_on_its_way_as_where_it_comes_from() {
        let (mut link, mut wire) = end();
        let (head, memory) = ([7; Fingerprint::BYTE_LEN], vec![8; 3 << 20]);
        for at in [0, 1, 16, 63] {
            let body = &memory[at..];
            let mut came = vec![0; framed(&head, body).len()];
            thread::scope(|scope| {
                scope.spawn(|| send(&mut link, &head, body, 0));
                wire.read_exact(&mut came).expect("open");
            });
            assert!(came == framed(&head, body));
            assert_eq!((came.len() - body.len()) % PROCESSOR_LINE, body.as_ptr().addr() % PROCESSOR_LINE);
        }
    }

    #[test]
    fn the_rest_of_a_gap_goes_before_the_rest_of_the_body() {
        let (head, body) = ([7; 4], [8; LONG_BODY]);
        let whole = framed(&head, &body);
        let gap = Gap::before(&body).bytes().len();
        for gone in 0..=gap {
            let (mut link, mut wire) = end();
            (link.gap, link.unsent) = (Gap::before(&body), gap - gone);
            link.pipe.send(&[IoSlice::new(&whole[..head.len() + gone])]).expect("room");
            send(&mut link, &head, &body, head.len());
            drop(link);
            let mut came = vec![];
            wire.read_to_end(&mut came).expect("open");
            assert!(came == whole, "{gone} bytes of the gap had gone");
        }
    }

    #[test]
    fn a_gap_comes_bit_by_bit() {
        let (head, memory) = ([7; 4], [8; LONG_BODY + PROCESSOR_LINE]);
        let (mut link, mut wire) = end();
        for at in [0, 63] {
            let body = &memory[at..][..LONG_BODY];
            let whole = framed(&head, body);
            for cut in 0..head.len() + LONGEST + 2 {
                let mut pieces = [&whole[..cut], &whole[cut..]].into_iter();
                let (mut came, mut done) = (vec![0; head.len() + body.len()], 0);
                while done < came.len() {
                    let got = match done {
                        0..4 => link.try_recv(&mut came[done..head.len()]),
                        4 => link.try_recv_led(&mut came[done..]),
                        _ => link.try_recv(&mut came[done..]),
                    };
                    match got.expect("open") {
                        0 => pieces.next().map_or((), |piece| wire.write_all(piece).expect("open")),
                        got => done += got,
                    }
                }
                assert!(came == [&head[..], body].concat(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn gaps_of_no_length_and_of_too_much_are_refused() {
        for (first, len) in [(0, "0"), (LONGEST as u8 + 1, "96"), (255, "255")] {
            let (mut link, mut wire) = end();
            wire.write_all(&[first; 100]).expect("open");
            let found = loop {
                match link.try_recv_led(&mut [0; LONG_BODY]) {
                    Ok(0) => {}
                    other => break other,
                }
            };
            assert_eq!(found, Err(LinkError::corrupt(None, format!("a gap of {len} bytes, must be 1 to 95"))));
        }
    }
}
