//! Frames: a head where one is due, the elements, and a checksum where the mesh wants one; sent and received bit by bit.

use smallvec::SmallVec;

use crate::fingerprint::Fingerprint;
use crate::link::{Link, LinkError, is_led};

/// A head, or none. It takes no memory of its own.
pub(crate) type Head = SmallVec<[u8; Fingerprint::BYTE_LEN]>;

/// A frame on its way out. The body stays with the caller, who shows it at every call.
#[derive(Debug)]
pub(crate) struct Outgoing {
    head: Head,
    body_len: usize,
    checksum: Option<u32>,
    done: usize,
}

/// A frame on its way in.
#[derive(Debug)]
pub(crate) struct Incoming {
    head: Head,
    body_len: usize,
    checksum: Option<u32>,
    tail: [u8; TAIL],
    done: usize,
}

/// What an incoming frame waits for next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Head,
    /// This many bytes of the body are still to come.
    Body(usize),
    Tail,
    End,
}

impl Outgoing {
    pub(crate) fn new(head: Head, body_len: usize, checksum: bool) -> Outgoing {
        Outgoing { head, body_len, checksum: checksum.then_some(0), done: 0 }
    }

    /// Sends as much as the link takes; true when any byte went.
    pub(crate) fn advance(&mut self, link: &mut dyn Link, body: &[u8]) -> Result<bool, LinkError> {
        let before = self.done;
        while !self.is_done() {
            let sent = match self.done.checked_sub(self.head.len() + self.body_len) {
                Some(at) => link.try_send(&self.checksum.unwrap_or_default().to_le_bytes()[at..])?,
                None => self.send_protected(link, body)?,
            };
            self.done += sent;
            if sent == 0 {
                break;
            }
        }
        Ok(self.done > before)
    }

    /// Sends of what the checksum protects, in one call.
    fn send_protected(&mut self, link: &mut dyn Link, body: &[u8]) -> Result<usize, LinkError> {
        let head = &self.head[self.done.min(self.head.len())..];
        let body = &body[self.done.saturating_sub(self.head.len())..];
        let is_led = is_led(head, self.body_len);
        let sent = if is_led { link.try_send_led(head, body) } else { link.try_send_parts([head, body]) }?;
        let of_head = sent.min(head.len());
        self.checksum = protect(self.checksum, &head[..of_head]);
        self.checksum = protect(self.checksum, &body[..sent - of_head]);
        Ok(sent)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done == self.head.len() + self.body_len + self.checksum.map_or(0, |_| TAIL)
    }
}

impl Incoming {
    pub(crate) fn new(head_len: usize, body_len: usize, checksum: bool) -> Incoming {
        let checksum = checksum.then_some(0);
        Incoming { head: Head::from_elem(0, head_len), body_len, checksum, tail: [0; TAIL], done: 0 }
    }

    /// What comes next.
    pub(crate) fn next(&self) -> Part {
        let tail = self.checksum.map_or(0, |_| TAIL);
        match self.done.checked_sub(self.head.len()) {
            None => Part::Head,
            Some(at) if at < self.body_len => Part::Body(self.body_len - at),
            Some(at) if at < self.body_len + tail => Part::Tail,
            Some(_) => Part::End,
        }
    }

    /// How many bytes of it have come.
    pub(crate) fn came(&self) -> usize {
        self.done
    }

    /// Receives some of the head; true when any byte came.
    pub(crate) fn advance_head(&mut self, link: &mut dyn Link) -> Result<bool, LinkError> {
        let came = link.try_recv(&mut self.head[self.done..])?;
        self.checksum = protect(self.checksum, &self.head[self.done..self.done + came]);
        self.done += came;
        Ok(came > 0)
    }

    /// Receives some of the body into the front of `into` and returns how much.
    pub(crate) fn advance_body(&mut self, link: &mut dyn Link, into: &mut [u8]) -> Result<usize, LinkError> {
        let left = self.head.len() + self.body_len - self.done;
        let room = into.len().min(left);
        let into = &mut into[..room];
        let begins = self.done == self.head.len();
        let came =
            if begins && is_led(&self.head, self.body_len) { link.try_recv_led(into) } else { link.try_recv(into) }?;
        self.checksum = protect(self.checksum, &into[..came]);
        self.done += came;
        Ok(came)
    }

    /// Receives some of the checksum, and compares it when it is whole; true when any byte came.
    pub(crate) fn advance_tail(&mut self, link: &mut dyn Link) -> Result<bool, LinkError> {
        let at = self.done - self.head.len() - self.body_len;
        let came = link.try_recv(&mut self.tail[at..])?;
        self.done += came;
        if self.next() == Part::End && self.checksum != Some(u32::from_le_bytes(self.tail)) {
            return Err(LinkError::corrupt(None, "checksum of a frame does not match"));
        }
        Ok(came > 0)
    }

    /// The head, once it has come.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Sets the length of the body, for frames whose head tells it.
    pub(crate) fn expect_body(&mut self, body_len: usize) {
        self.body_len = body_len;
    }
}

/// The checksum of a frame, if it has one, after these bytes.
fn protect(checksum: Option<u32>, bytes: &[u8]) -> Option<u32> {
    checksum.map(|checksum| crc32c::crc32c_append(checksum, bytes))
}

const TAIL: usize = size_of::<u32>();
