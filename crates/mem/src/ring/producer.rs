//! The writing side of a ring.

use super::{CONSUMER_CLOSED, HEAD, PAYLOAD, PRODUCER_CLOSED, RingError, TAIL, between, is_set, position, set, unused};
use crate::region::{PlaceError, Region};
use crate::sync::Ordering;

/// The writing side. Dropping it closes the ring.
pub struct Producer {
    region: Region,
    capacity: usize,
    tail: u64,
    seen_head: u64,
    closed: bool,
}

impl Producer {
    /// Writes as many of `bytes` as there is room for; zero when the ring is full.
    ///
    /// # Errors
    ///
    /// [`Closed`](RingError::Closed) when either side closed the ring, [`Corrupt`](RingError::Corrupt) when the
    /// consumer's index is nonsense.
    pub fn try_write(&mut self, bytes: &[u8]) -> Result<usize, RingError> {
        if self.closed || self.is_closed() {
            return Err(RingError::Closed);
        }
        let written = bytes.len().min(self.room(bytes.len())?);
        let (first, second) = bytes[..written].split_at(written.min(self.capacity - self.position()));
        // SAFETY: these bytes lie from the tail up to the head plus the capacity, where the consumer does not read.
        unsafe { self.region.write(PAYLOAD + self.position(), first) };
        // SAFETY: as above; the rest wraps around to the start.
        unsafe { self.region.write(PAYLOAD, second) };
        self.tail = self.tail.wrapping_add(written as u64);
        self.region.word(TAIL).store(self.tail, Ordering::Release);
        Ok(written)
    }

    /// Whether the consumer is gone, so that nothing written will be read any more.
    pub fn is_closed(&self) -> bool {
        is_set(&self.region, CONSUMER_CLOSED)
    }

    /// Tells the consumer that nothing follows what was written so far.
    pub fn close(&mut self) {
        self.closed = true;
        set(&self.region, PRODUCER_CLOSED);
    }

    /// The number of bytes that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn new(region: Region, capacity: usize) -> Result<Producer, PlaceError> {
        unused(&region, TAIL, PRODUCER_CLOSED)?;
        Ok(Producer { region, capacity, tail: 0, seen_head: 0, closed: false })
    }

    /// How many bytes fit. Looks at the consumer's index only when fewer than `wanted` are known to.
    fn room(&mut self, wanted: usize) -> Result<usize, RingError> {
        let known = self.capacity - between(self.seen_head, self.tail);
        if known >= wanted {
            return Ok(known);
        }
        let head = self.region.word(HEAD).load(Ordering::Acquire);
        // A head that went back, or past the tail, would leave more unread than before.
        if self.tail.wrapping_sub(head) > self.tail.wrapping_sub(self.seen_head) {
            return Err(RingError::Corrupt { index: head });
        }
        self.seen_head = head;
        Ok(self.capacity - between(head, self.tail))
    }

    fn position(&self) -> usize {
        position(self.tail, self.capacity)
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.close();
    }
}
