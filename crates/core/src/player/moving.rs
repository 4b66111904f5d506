//! Moves: a frame out and a frame in at once, the incoming one stored or folded while it arrives.

use smallvec::SmallVec;

use super::frame::{Head, Incoming, Outgoing, Part};
use super::memory::Memory;
use super::{Progress, Task, grow, lost};
use crate::error::{Stuck, Waiting};
use crate::fingerprint::Fingerprint;
use crate::link::Mesh;
use crate::reduce::fold;
use crate::schedule::{Recv, Send, Then};
use crate::{Error, Result};

/// The frames of the current step, and who has been greeted in this operation.
#[derive(Debug, Default)]
pub(super) struct Moving {
    out: Option<Outgoing>,
    arriving: Option<Incoming>,
    /// The peers that the fingerprint has gone to.
    told: Flags,
    /// The peers whose fingerprint has come.
    heard: Flags,
    /// Room for what is folded as it comes, made by the first that is.
    staged: Vec<u8>,
    /// How many bytes of an element that is not whole yet are staged.
    staged_len: usize,
}

/// A bit for each peer. Few enough of them take no memory.
#[derive(Debug, Default)]
struct Flags(SmallVec<[u64; 2]>);

impl Moving {
    /// Forgets what is left of another operation.
    pub(super) fn begin(&mut self) {
        (self.out, self.arriving, self.staged_len) = (None, None, 0);
        self.told.clear();
        self.heard.clear();
    }

    pub(super) fn poll(
        &mut self,
        task: &Task<'_>,
        (send, recv): (Option<Send>, Option<Recv>),
        memory: &mut Memory<'_, '_>,
        mesh: &mut Mesh,
    ) -> Result<Progress> {
        let mut moved = false;
        if let Some(send) = send {
            moved |= self.poll_send(task, send, memory, mesh)?;
        }
        if let Some(recv) = recv {
            let mut advances = 0;
            while advances < MOST_ADVANCES && self.advance_recv(task, recv, memory, mesh)? {
                (advances, moved) = (advances + 1, true);
            }
        }
        let sent = self.out.as_ref().is_none_or(Outgoing::is_done);
        let received = self.arriving.as_ref().is_none_or(|frame| frame.next() == Part::End);
        if sent && received {
            (self.out, self.arriving) = (None, None);
            return Ok(Progress::Done);
        }
        Ok(if moved { Progress::Moved } else { Progress::Idle })
    }

    /// The sides of the current step that have not ended.
    pub(super) fn stuck(&self, send: Option<Send>, recv: Option<Recv>) -> Vec<Stuck> {
        let sending = send.filter(|_| self.out.as_ref().is_none_or(|frame| !frame.is_done()));
        let receiving = recv.filter(|_| self.arriving.as_ref().is_none_or(|frame| frame.next() != Part::End));
        let taking = sending.map(|send| Stuck { peer: send.to, on: Waiting::Taking });
        let giving = receiving.map(|recv| Stuck { peer: recv.from, on: Waiting::Giving });
        taking.into_iter().chain(giving).collect()
    }

    /// The fingerprint of the frame that is coming in, once it has come.
    pub(super) fn head(&self) -> Option<Fingerprint> {
        let frame = self.arriving.as_ref().filter(|frame| frame.next() != Part::Head)?;
        Fingerprint::decode(frame.head().try_into().ok()?).ok()
    }

    fn poll_send(&mut self, task: &Task<'_>, send: Send, memory: &Memory<'_, '_>, mesh: &mut Mesh) -> Result<bool> {
        let body = memory.read(send.span);
        let checksum = mesh.checksum();
        let told = &mut self.told;
        let out = self.out.get_or_insert_with(|| {
            let head = if told.set(send.to) {
                Head::from_slice(&task.fingerprint(send.to, true).encode())
            } else {
                Head::new()
            };
            Outgoing::new(head, body.len(), checksum)
        });
        let link = mesh.link(send.to).map_err(|error| lost(send.to, error))?;
        out.advance(link, body).map_err(|error| lost(send.to, error))
    }

    fn advance_recv(
        &mut self,
        task: &Task<'_>,
        recv: Recv,
        memory: &mut Memory<'_, '_>,
        mesh: &mut Mesh,
    ) -> Result<bool> {
        let peer = recv.from;
        let checksum = mesh.checksum();
        let head_len = if self.heard.has(peer) { 0 } else { Fingerprint::BYTE_LEN };
        let body_len = recv.span.len * memory.byte_len;
        let frame = self.arriving.get_or_insert_with(|| Incoming::new(head_len, body_len, checksum));
        let link = mesh.link(peer).map_err(|error| lost(peer, error))?;
        match frame.next() {
            Part::End => Ok(false),
            Part::Tail => frame.advance_tail(link).map_err(|error| lost(peer, error)),
            Part::Head => {
                let moved = frame.advance_head(link).map_err(|error| lost(peer, error))?;
                if frame.next() != Part::Head {
                    self.heard.set(peer);
                    task.compare(peer, frame.head(), &task.fingerprint(peer, false))?;
                }
                Ok(moved)
            }
            Part::Body(left) if recv.then == Then::Store => {
                let into = &mut memory.write(recv.span)[body_len - left..];
                Ok(frame.advance_body(link, into).map_err(|error| lost(peer, error))? > 0)
            }
            Part::Body(left) => {
                grow(&mut self.staged, STAGED)?;
                let room = &mut self.staged[self.staged_len..];
                let came = frame.advance_body(link, room).map_err(|error| lost(peer, error))?;
                let start = body_len - left - self.staged_len;
                self.staged_len += came;
                self.fold_whole_elements(task, &mut memory.write(recv.span)[start..])?;
                Ok(came > 0)
            }
        }
    }

    /// Folds what is staged into the front of `into`, and keeps the bytes of a last element that is not whole yet.
    fn fold_whole_elements(&mut self, task: &Task<'_>, into: &mut [u8]) -> Result<()> {
        let staged = &mut self.staged;
        let unit = task.dtype.byte_len();
        let whole = self.staged_len / unit * unit;
        let joined = fold(task.join(false), task.dtype, &mut into[..whole], &staged[..whole]);
        joined.map_err(|error| Error::setup("reduction", error))?;
        staged.copy_within(whole..self.staged_len, 0);
        self.staged_len -= whole;
        Ok(())
    }
}

impl Flags {
    fn clear(&mut self) {
        self.0.clear();
    }

    fn has(&self, peer: usize) -> bool {
        self.0.get(peer / 64).is_some_and(|word| word >> (peer % 64) & 1 != 0)
    }

    /// Sets a peer's flag; whether it was not set before.
    fn set(&mut self, peer: usize) -> bool {
        let (at, bit) = (peer / 64, 1 << (peer % 64));
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        let was = self.0[at];
        self.0[at] |= bit;
        was & bit == 0
    }
}

/// How often one poll takes what a peer has sent, who may never stop.
const MOST_ADVANCES: u32 = 64;
/// As much as links hand over at once at best, and room for what is left of an element. It stays in the second-level cache
/// between its receive and its fold.
const STAGED: usize = (64 << 10) + 64;
