//! A link of rings to a neighbour.

use std::sync::Arc;

use phalanx_core::link::{Link, LinkError, Whole};

use super::ending::Ending;
use crate::net::Standing;

/// A link whose end means what the neighbour's standing says.
pub(super) struct NeighbourLink {
    ring: Box<dyn Link>,
    ending: Ending,
}

impl NeighbourLink {
    pub(super) fn new(ring: Box<dyn Link>, rank: usize, standing: Arc<Standing>) -> NeighbourLink {
        NeighbourLink { ring, ending: Ending::new(rank, standing) }
    }

    fn judged(&self, end: Result<usize, LinkError>) -> Result<usize, LinkError> {
        match end {
            Err(LinkError::Left { .. }) => self.ending.judge().map(|()| 0),
            moved => moved,
        }
    }
}

impl Link for NeighbourLink {
    fn try_send(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
        let sent = self.ring.try_send(bytes);
        self.judged(sent)
    }

    fn try_send_parts(&mut self, parts: [&[u8]; 2]) -> Result<usize, LinkError> {
        let sent = self.ring.try_send_parts(parts);
        self.judged(sent)
    }

    fn try_send_led(&mut self, head: &[u8], body: &[u8]) -> Result<usize, LinkError> {
        let sent = self.ring.try_send_led(head, body);
        self.judged(sent)
    }

    fn try_send_frame(&mut self, head: &[u8], body: &[u8]) -> Whole {
        self.ring.try_send_frame(head, body)
    }

    fn try_recv_frame(&mut self, head: &[u8], body: &mut [u8]) -> Whole {
        self.ring.try_recv_frame(head, body)
    }

    fn try_recv(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let came = self.ring.try_recv(into);
        self.judged(came)
    }

    fn try_recv_led(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let came = self.ring.try_recv_led(into);
        self.judged(came)
    }

    fn announce(&mut self) {
        self.ring.announce();
    }
}
