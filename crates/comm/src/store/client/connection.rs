//! A connection on which a server has let us in: plain bytes out and in, encrypted or not, and what is known of what it did.

use std::time::Instant;

use phalanx_core::store::wire::Malformed;

use super::stream::Stream;
use super::trouble::Trouble;
use crate::moment::left;
use crate::secure::Tunnel;

/// A connection to a store.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    tunnel: Tunnel,
    dialect: Dialect,
    /// Opened bytes that were not used yet.
    inbox: Vec<u8>,
    exchange: Exchange,
}

/// Which words the server understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Native,
    PyTorch,
}

/// How far what was asked last has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Exchange {
    /// Something was said that has not been answered to the end.
    open: bool,
    /// A request that changes the store was handed to the system whole.
    delivered: bool,
}

impl Connection {
    pub(super) fn new(stream: Stream, tunnel: Tunnel, dialect: Dialect) -> Connection {
        Connection { stream, tunnel, dialect, inbox: Vec::new(), exchange: Exchange::default() }
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Begins a new exchange.
    pub(super) fn begin(&mut self) {
        self.exchange = Exchange { open: true, delivered: false };
    }

    /// The exchange came to its end, so that the connection can be used again.
    pub(super) fn finish(&mut self) {
        self.exchange.open = false;
    }

    /// It became known that nothing was changed after all.
    pub(super) fn undelivered(&mut self) {
        self.exchange.delivered = false;
    }

    /// Whether the server may have been told to change something, in this exchange.
    pub(super) fn delivered(&self) -> bool {
        self.exchange.delivered
    }

    /// Whether the last exchange came to its end, with nothing left over.
    pub(super) fn is_settled(&self) -> bool {
        !self.exchange.open && self.inbox.is_empty() && self.stream.inbox().is_empty()
    }

    /// Whether another exchange can begin here: it is settled, and the server has not closed it meanwhile.
    pub(super) fn is_free(&self) -> bool {
        self.is_settled() && self.stream.is_quiet()
    }

    /// Sends `bytes` by `until`. The first `change` of them, if any, change the store as soon as the server has them.
    pub(super) fn send(&mut self, bytes: &[u8], change: usize, until: Instant) -> Result<(), Trouble> {
        let mut sealed = Vec::new();
        let (wire, change) = match self.tunnel.is_sealed() {
            false => (bytes, change),
            true => {
                self.tunnel.seal(bytes, &mut sealed)?;
                // Records are opened as a whole, and the change may end in the last.
                (sealed.as_slice(), if change > 0 { sealed.len() } else { 0 })
            }
        };
        let mut sent = 0;
        let outcome = self.stream.send(wire, until, &mut sent);
        self.exchange.delivered |= change > 0 && sent >= change;
        outcome
    }

    /// The next answer by `until`, as `decode` finds it with its length in what has come.
    pub(super) fn receive<T>(
        &mut self,
        until: Instant,
        mut decode: impl FnMut(&[u8]) -> Result<Option<(T, usize)>, Malformed>,
    ) -> Result<Option<T>, Trouble> {
        let mut is_over = false;
        loop {
            // Something may have come while the request was sent.
            self.open()?;
            if let Some((answer, len)) = decode(&self.inbox)? {
                self.used(len);
                return Ok(Some(answer));
            }
            // An answer that is there counts, however late it is looked at. One that is still coming does not.
            if is_over || !self.stream.fill(until)? {
                return Ok(None);
            }
            is_over = left(until).is_zero();
        }
    }

    /// An answer that came although sending failed: what the server said before it closed. Looks for it no longer than
    /// `until`.
    pub(super) fn last_words<T>(
        &mut self,
        until: Instant,
        decode: impl FnOnce(&[u8]) -> Result<Option<(T, usize)>, Malformed>,
    ) -> Option<T> {
        // What is readable stays so after the end or a reset, until that itself is read.
        self.stream.drain(until);
        self.open().ok()?;
        decode(&self.inbox).ok().flatten().map(|(answer, _)| answer)
    }

    fn open(&mut self) -> Result<(), Trouble> {
        let opened = self.tunnel.open(self.stream.inbox(), &mut self.inbox)?;
        self.stream.used(opened);
        Ok(())
    }

    fn used(&mut self, len: usize) {
        self.inbox.drain(..len);
        if self.inbox.is_empty() && self.inbox.capacity() > KEPT {
            self.inbox = Vec::new();
        }
    }
}

/// The largest buffer that an idle connection keeps, in bytes.
const KEPT: usize = 64 << 10;
