//! Messages that nothing stands before: they go and come whole, without a place in any queue. What cannot is left to the ordinary way,
//! which finds out why.

use super::{Mail, fingerprint};
use crate::DType;
use crate::link::{Mesh, Whole};

impl Mail {
    /// Sends `body` to a peer at once and whole, if that can be.
    pub fn send_at_once(&mut self, mesh: &mut Mesh, to: usize, tag: u32, dtype: DType, body: &[u8]) -> Whole {
        let desk = &mut self.desks[to];
        if mesh.checksum() || !desk.is_clear_out() {
            return Whole::Never;
        }
        let head = fingerprint(desk.epoch, desk.sent, tag, dtype, body.len()).encode();
        let went = mesh.link(to).map_or(Whole::Never, |link| link.try_send_frame(&head, body));
        if went == Whole::Moved {
            desk.sent = desk.sent.wrapping_add(1);
            mesh.announce();
        }
        went
    }

    /// Receives the next message of a peer at once and whole, if it is there and just what is asked for.
    pub fn recv_at_once(&mut self, mesh: &mut Mesh, from: usize, tag: u32, dtype: DType, body: &mut [u8]) -> Whole {
        let desk = &mut self.desks[from];
        if mesh.checksum() || !self.posted.is_empty() || !desk.is_clear_in() {
            return Whole::Never;
        }
        let head = fingerprint(desk.epoch, desk.received, tag, dtype, body.len()).encode();
        let came = mesh.link(from).map_or(Whole::Never, |link| link.try_recv_frame(&head, body));
        if came == Whole::Moved {
            desk.received = desk.received.wrapping_add(1);
            mesh.announce();
        }
        came
    }
}
