//! Moves: a frame out and a frame in at once, the incoming one stored or folded while it arrives.

use super::frame::{Incoming, Outgoing, Part};
use super::memory::Memory;
use super::{Progress, Task, lost};
use crate::error::{Stuck, Waiting};
use crate::fingerprint::Fingerprint;
use crate::link::Mesh;
use crate::reduce::fold;
use crate::schedule::{Recv, Send, Then};
use crate::{Error, Result};

/// The frames of the current step, and who has been greeted in this operation.
#[derive(Debug)]
pub(super) struct Moving {
    out: Option<Outgoing>,
    arriving: Option<Incoming>,
    /// The peers that the fingerprint has gone to.
    told: Flags,
    /// The peers whose fingerprint has come.
    heard: Flags,
    /// Bytes that came of a receive that folds, until whole elements are there.
    staged: Vec<u8>,
    staged_len: usize,
}

/// A flag for each peer. No memory is taken before the first is set: most operations of one host set none.
#[derive(Debug, Default)]
struct Flags(Vec<bool>);

impl Moving {
    pub(super) fn new() -> Moving {
        Moving {
            out: None,
            arriving: None,
            told: Flags::default(),
            heard: Flags::default(),
            staged: vec![],
            staged_len: 0,
        }
    }

    pub(super) fn poll(
        &mut self,
        task: &Task,
        send: Option<Send>,
        recv: Option<Recv>,
        memory: &mut Memory<'_, '_>,
        mesh: &mut Mesh,
    ) -> Result<Progress> {
        let mut moved = false;
        if let Some(send) = send {
            moved |= self.poll_send(task, send, memory, mesh)?;
        }
        if let Some(recv) = recv {
            moved |= self.poll_recv(task, recv, memory, mesh)?;
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

    fn poll_send(&mut self, task: &Task, send: Send, memory: &Memory<'_, '_>, mesh: &mut Mesh) -> Result<bool> {
        let body = memory.read(send.span);
        let checksum = mesh.checksum();
        let told = &mut self.told;
        let out = self.out.get_or_insert_with(|| {
            let head = if told.set(send.to) { task.fingerprint(send.to, true).encode().to_vec() } else { vec![] };
            Outgoing::new(head, body.len(), checksum)
        });
        let link = mesh.link(send.to).map_err(|error| lost(send.to, error))?;
        out.advance(link, body).map_err(|error| lost(send.to, error))
    }

    fn poll_recv(&mut self, task: &Task, recv: Recv, memory: &mut Memory<'_, '_>, mesh: &mut Mesh) -> Result<bool> {
        let mut moved = false;
        while self.advance_recv(task, recv, memory, mesh)? {
            moved = true;
        }
        Ok(moved)
    }

    fn advance_recv(&mut self, task: &Task, recv: Recv, memory: &mut Memory<'_, '_>, mesh: &mut Mesh) -> Result<bool> {
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
                // Cleared once, and no more of it than is of use.
                let room = STAGED.min(body_len);
                self.staged.resize(self.staged.len().max(room), 0);
                let came =
                    frame.advance_body(link, &mut self.staged[self.staged_len..]).map_err(|error| lost(peer, error))?;
                let start = body_len - left - self.staged_len;
                self.staged_len += came;
                self.fold_whole_elements(task, &mut memory.write(recv.span)[start..], task.dtype.byte_len())?;
                Ok(came > 0)
            }
        }
    }

    /// Folds what is staged into the front of `into`, and keeps the bytes of a last element that is not whole yet.
    fn fold_whole_elements(&mut self, task: &Task, into: &mut [u8], unit: usize) -> Result<()> {
        let whole = self.staged_len / unit * unit;
        let joined = fold(task.join(false), task.dtype, &mut into[..whole], &self.staged[..whole]);
        joined.map_err(|error| Error::setup("reduction", error))?;
        self.staged.copy_within(whole..self.staged_len, 0);
        self.staged_len -= whole;
        Ok(())
    }
}

impl Flags {
    fn has(&self, peer: usize) -> bool {
        self.0.get(peer).is_some_and(|flag| *flag)
    }

    /// Sets a peer's flag; whether it was not set before.
    fn set(&mut self, peer: usize) -> bool {
        if self.0.len() <= peer {
            self.0.resize(peer + 1, false);
        }
        !std::mem::replace(&mut self.0[peer], true)
    }
}

/// As much as links hand over at once at best, and room for what is left of an element. It stays in the second-level cache
/// between its receive and its fold.
const STAGED: usize = (64 << 10) + 16;
