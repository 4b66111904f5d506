//! The socket of a link, and what its end means. A link that ends says nothing of its peer's fate: that is told on the
//! control connection.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_core::link::LinkError;

use super::socket::{Found, Socket};
use super::standing::Standing;

/// A socket to a peer, which sends no more when this is dropped.
pub(super) struct Pipe {
    socket: Arc<Socket>,
    standing: Arc<Standing>,
    /// Since when the connection has ended without a word.
    ended: Option<Instant>,
}

impl Pipe {
    pub(super) fn new(socket: Arc<Socket>, standing: Arc<Standing>) -> Pipe {
        Pipe { socket, standing, ended: None }
    }

    pub(super) fn send(&mut self, parts: &[IoSlice<'_>]) -> Result<usize, LinkError> {
        match self.socket.try_send(parts) {
            Found::Bytes(len) => Ok(len),
            Found::Nothing => Ok(0),
            Found::End => self.end(),
        }
    }

    pub(super) fn recv(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
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

/// How long the reason for the end of a connection may take, which comes over another one. Whoever dies ends that as well, which is seen at
/// once: who has not ended it means to say why, and its words may be lost once and be sent again.
const GRACE: Duration = Duration::from_secs(1);
