//! The reading side of a ring.

use super::{
    CONSUMER_CLOSED, HEAD, PAYLOAD, PRODUCER_CLOSED, RingError, TAIL, between, gauge, is_set, position, set, to_line,
    unused,
};
use crate::gauge::Echo;
use crate::region::{PlaceError, Region};
use crate::stream::copy_past_caches;
use crate::sync::Ordering;

/// The reading side. Dropping it closes the ring.
pub struct Consumer {
    region: Region,
    capacity: usize,
    head: u64,
    seen_tail: u64,
    /// Answers how far it is, where that is asked.
    echo: Option<Echo>,
}

impl Consumer {
    /// Reads as many bytes as there are, at most `bytes.len()`; zero when the ring is empty.
    ///
    /// # Errors
    ///
    /// [`Closed`](RingError::Closed) when the producer closed the ring and everything is read,
    /// [`Corrupt`](RingError::Corrupt) when the producer's index is nonsense.
    pub fn try_read(&mut self, bytes: &mut [u8]) -> Result<usize, RingError> {
        self.try_read_by(bytes, |into, from| into.copy_from_slice(from))
    }

    /// The same, copied past the caches.
    ///
    /// # Errors
    ///
    /// As [`try_read`](Consumer::try_read).
    pub fn try_read_past_caches(&mut self, bytes: &mut [u8]) -> Result<usize, RingError> {
        self.try_read_by(bytes, copy_past_caches)
    }

    /// How many bytes a body that begins at a line is from the end of the head that comes next, of this length.
    pub fn gap_behind(&self, head_len: usize) -> usize {
        to_line(self.head.wrapping_add(head_len as u64))
    }

    /// Goes on to the next line, where a body begins that [`try_write_led`](super::Producer::try_write_led) wrote, and whose head is read;
    /// false while that is not there.
    ///
    /// # Errors
    ///
    /// As [`try_read`](Consumer::try_read).
    pub fn try_skip_to_line(&mut self) -> Result<bool, RingError> {
        let gap = self.gap_behind(0);
        let is_there = self.readable_behind(gap, 1)? > 0;
        if is_there {
            self.head = self.head.wrapping_add(gap as u64);
        }
        Ok(is_there)
    }

    #[inline]
    fn try_read_by(&mut self, bytes: &mut [u8], copy: impl Fn(&mut [u8], &[u8])) -> Result<usize, RingError> {
        let read = bytes.len().min(self.readable(bytes.len())?);
        let (first, second) = bytes[..read].split_at_mut(read.min(self.before_the_wrap()));
        let start = PAYLOAD + self.position();
        // SAFETY: these bytes lie from the head up to the tail, where the producer does not write.
        copy(first, unsafe { self.region.lend(start..start + first.len()) });
        // SAFETY: as above; the rest wraps around to the start.
        copy(second, unsafe { self.region.lend(PAYLOAD..PAYLOAD + second.len()) });
        self.release(read);
        Ok(read)
    }

    /// How many bytes there are at most before they wrap around, from the next one on.
    pub fn before_the_wrap(&self) -> usize {
        self.capacity - self.position()
    }

    /// The next bytes without copying them, up to where they wrap around; empty when the ring is. It is looked for more than is known only
    /// where that is less than `wanted`.
    ///
    /// They stay in the ring until [`advance`](Consumer::advance).
    ///
    /// # Errors
    ///
    /// As [`try_read`](Consumer::try_read).
    pub fn peek(&mut self, wanted: usize) -> Result<&[u8], RingError> {
        let start = PAYLOAD + self.position();
        let contiguous = self.readable(wanted)?.min(self.before_the_wrap());
        // SAFETY: these bytes lie from the head up to the tail, where the producer does not write; the head cannot move
        // while the slice borrows the consumer.
        Ok(unsafe { self.region.lend(start..start + contiguous) })
    }

    /// Releases the next `byte_len` bytes for the producer to overwrite.
    ///
    /// # Errors
    ///
    /// [`PastEnd`](RingError::PastEnd) when fewer bytes have been seen; nothing is released then.
    pub fn advance(&mut self, byte_len: usize) -> Result<(), RingError> {
        let readable = between(self.head, self.seen_tail);
        if byte_len > readable {
            return Err(RingError::PastEnd { byte_len, readable });
        }
        self.release(byte_len);
        Ok(())
    }

    /// Whether nothing more will come: the producer is gone, or its index is nonsense, and all it wrote is read.
    pub fn is_closed(&mut self) -> bool {
        self.readable(1).is_err()
    }

    /// Tells the producer that nothing will be read any more.
    pub fn close(&mut self) {
        set(&self.region, CONSUMER_CLOSED);
    }

    /// The number of bytes that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn new(region: Region, capacity: usize) -> Result<Consumer, PlaceError> {
        unused(&region, HEAD, CONSUMER_CLOSED)?;
        Ok(Consumer { region, capacity, head: 0, seen_tail: 0, echo: gauge(capacity).map(Echo::new) })
    }

    /// How many bytes there are. Looks at the producer's index only when fewer than `wanted` are known.
    fn readable(&mut self, wanted: usize) -> Result<usize, RingError> {
        self.readable_behind(0, wanted)
    }

    /// The same behind the next `gap` bytes, which nobody reads.
    #[inline]
    fn readable_behind(&mut self, gap: usize, wanted: usize) -> Result<usize, RingError> {
        if between(self.head, self.seen_tail) < gap + wanted {
            self.look()?;
        }
        let drained = between(self.head, self.seen_tail) <= gap && wanted > 0;
        if drained && is_set(&self.region, PRODUCER_CLOSED) {
            // What was written just before closing may have come after the first look.
            self.look()?;
            if between(self.head, self.seen_tail) <= gap {
                return Err(RingError::Closed);
            }
        }
        Ok(between(self.head, self.seen_tail).saturating_sub(gap))
    }

    fn look(&mut self) -> Result<(), RingError> {
        let tail = self.region.word(TAIL).load(Ordering::Acquire);
        let known = self.seen_tail.wrapping_sub(self.head)..=self.capacity as u64;
        if !known.contains(&tail.wrapping_sub(self.head)) {
            return Err(RingError::Corrupt { index: tail });
        }
        self.seen_tail = tail;
        Ok(())
    }

    fn release(&mut self, byte_len: usize) {
        self.head = self.head.wrapping_add(byte_len as u64);
        self.region.word(HEAD).store(self.head, Ordering::Release);
        if let Some(echo) = &mut self.echo
            && byte_len > 0
        {
            echo.answer(&self.region);
        }
    }

    fn position(&self) -> usize {
        position(self.head, self.capacity)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.close();
    }
}
