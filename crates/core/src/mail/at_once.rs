//! Messages that nothing stands before: they go and come whole, without a place in any queue. What cannot is left to the ordinary way,
//! which finds out why.

use super::Mail;
use crate::DType;
use crate::link::{Link, Mesh, Whole};

impl Mail {
    /// Sends `body` to a peer at once and whole, if that can be.
    pub fn send_at_once(&mut self, mesh: &mut Mesh, to: usize, tag: u32, dtype: DType, body: &[u8]) -> Whole {
        at_once(mesh, to, |link| self.desks[to].push_whole(link, tag, dtype, body))
    }

    /// Receives the next message of a peer at once and whole, if it is there and just what is asked for.
    pub fn recv_at_once(&mut self, mesh: &mut Mesh, from: usize, tag: u32, dtype: DType, body: &mut [u8]) -> Whole {
        if !self.posted.is_empty() {
            return Whole::Never;
        }
        at_once(mesh, from, |link| self.desks[from].pull_whole(link, tag, dtype, body))
    }
}

/// Moves a frame, and has the peer told of it; frames that end with a checksum go bit by bit.
fn at_once(mesh: &mut Mesh, peer: usize, step: impl FnOnce(&mut dyn Link) -> Whole) -> Whole {
    if mesh.checksum() {
        return Whole::Never;
    }
    let whole = mesh.link(peer).map_or(Whole::Never, step);
    if whole == Whole::Moved {
        mesh.announce();
    }
    whole
}
