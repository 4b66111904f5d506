//! A byte ring between one producer and one consumer, threads of one process or processes that share a segment.
//! Never waits: zero bytes mean "not now".
//!
//! # Why a lent byte stays
//!
//! The tail counts bytes ever written, the head bytes ever released; each side stores only its own. The producer writes
//! at positions from the tail up to the head plus the capacity, the consumer reads from the head up to the tail, so they
//! never meet. The tail is stored with release after the bytes are written and loaded with acquire before they are read;
//! the head is stored with release after they are read and loaded with acquire before they are overwritten.
//!
//! # What is believed of the other side
//!
//! In a segment the other side's index is another process's input. It is read once, must not go back and must keep the
//! bytes between the indices within the capacity; any other value is [`Corrupt`](RingError::Corrupt). A side's own index
//! is never read back. What [`peek`](Consumer::peek) lends from a segment stays unchanged only while the producer's
//! process follows the protocol: see `Segment`, *Who is trusted with a segment*.

#[cfg(all(test, loom))]
mod loom_model;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::region::{LINE, PlaceError, Region, whole_lines};
use crate::sync::Ordering;
#[cfg(not(loom))]
use crate::{Segment, claims::Purpose};

/// A ring on the heap with room for `capacity` bytes, a power of two.
///
/// # Errors
///
/// When the capacity is not a power of two, or memory is out.
pub fn pair(capacity: usize) -> Result<(Producer, Consumer), PlaceError> {
    let mut regions = Region::shared_on_heap(checked_byte_len(capacity)?, 2)?.into_iter();
    match (regions.next(), regions.next()) {
        (Some(first), Some(second)) => Ok((Producer::new(first, capacity)?, Consumer::new(second, capacity)?)),
        _ => unreachable!("two handles were asked for"),
    }
}

/// The producer of the ring of `capacity` bytes at `offset` of a segment, whose bytes there must be as created.
///
/// # Errors
///
/// When the capacity is not a power of two, the offset not a multiple of [`LINE`](crate::LINE), the part not inside
/// the segment or in use, or when a producer was there before.
#[cfg(not(loom))]
pub fn producer_in(segment: std::sync::Arc<Segment>, offset: usize, capacity: usize) -> Result<Producer, PlaceError> {
    Producer::new(region_in(segment, offset, capacity, PRODUCER)?, capacity)
}

/// The consumer of the ring of `capacity` bytes at `offset` of a segment, whose bytes there must be as created.
///
/// # Errors
///
/// As [`producer_in`], for a consumer.
#[cfg(not(loom))]
pub fn consumer_in(segment: std::sync::Arc<Segment>, offset: usize, capacity: usize) -> Result<Consumer, PlaceError> {
    Consumer::new(region_in(segment, offset, capacity, CONSUMER)?, capacity)
}

/// How many bytes of a segment a ring with room for `capacity` bytes takes, or none if no ring has this capacity.
pub fn byte_len(capacity: usize) -> Option<usize> {
    checked_byte_len(capacity).ok()
}

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

    fn new(region: Region, capacity: usize) -> Result<Producer, PlaceError> {
        unused(&region, TAIL, PRODUCER_CLOSED)?;
        Ok(Producer {
            region,
            capacity,
            tail: 0,
            seen_head: 0,
            closed: false,
        })
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

/// The reading side. Dropping it closes the ring.
pub struct Consumer {
    region: Region,
    capacity: usize,
    head: u64,
    seen_tail: u64,
}

impl Consumer {
    /// Reads as many bytes as there are, at most `bytes.len()`; zero when the ring is empty.
    ///
    /// # Errors
    ///
    /// [`Closed`](RingError::Closed) when the producer closed the ring and everything is read,
    /// [`Corrupt`](RingError::Corrupt) when the producer's index is nonsense.
    pub fn try_read(&mut self, bytes: &mut [u8]) -> Result<usize, RingError> {
        let read = bytes.len().min(self.readable(bytes.len())?);
        let (first, second) = bytes[..read].split_at_mut(read.min(self.capacity - self.position()));
        // SAFETY: these bytes lie from the head up to the tail, where the producer does not write.
        unsafe { self.region.read(PAYLOAD + self.position(), first) };
        // SAFETY: as above; the rest wraps around to the start.
        unsafe { self.region.read(PAYLOAD, second) };
        self.release(read);
        Ok(read)
    }

    /// The next bytes without copying them, up to where they wrap around; empty when the ring is.
    ///
    /// They stay in the ring until [`advance`](Consumer::advance).
    ///
    /// # Errors
    ///
    /// As [`try_read`](Consumer::try_read).
    pub fn peek(&mut self) -> Result<&[u8], RingError> {
        let start = PAYLOAD + self.position();
        let contiguous = self.readable(1)?.min(self.capacity - self.position());
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

    fn new(region: Region, capacity: usize) -> Result<Consumer, PlaceError> {
        unused(&region, HEAD, CONSUMER_CLOSED)?;
        Ok(Consumer {
            region,
            capacity,
            head: 0,
            seen_tail: 0,
        })
    }

    /// How many bytes there are. Looks at the producer's index only when fewer than `wanted` are known.
    fn readable(&mut self, wanted: usize) -> Result<usize, RingError> {
        if between(self.head, self.seen_tail) < wanted {
            self.look()?;
        }
        let drained = self.seen_tail == self.head && wanted > 0;
        if drained && is_set(&self.region, PRODUCER_CLOSED) {
            // What was written just before closing may have come after the first look.
            self.look()?;
            if self.seen_tail == self.head {
                return Err(RingError::Closed);
            }
        }
        Ok(between(self.head, self.seen_tail))
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

/// Why bytes cannot pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The ring is closed; no byte will ever pass again.
    #[error("the ring is closed")]
    Closed,
    /// The other side's index is none that it could have.
    #[error("the other side of the ring has the impossible index {index}")]
    Corrupt {
        /// The index as read.
        index: u64,
    },
    /// More bytes were to be released than have been seen.
    #[error("{byte_len} bytes of a ring to release where {readable} were seen")]
    PastEnd {
        /// The number of bytes to release.
        byte_len: usize,
        /// The number of bytes seen.
        readable: usize,
    },
}

#[cfg(not(loom))]
fn region_in(
    segment: std::sync::Arc<Segment>,
    offset: usize,
    capacity: usize,
    role: usize,
) -> Result<Region, PlaceError> {
    let end = offset
        .checked_add(checked_byte_len(capacity)?)
        .ok_or(PlaceError::TooLong)?;
    Region::in_segment(segment, offset..end, Purpose::Ring { capacity }, role)
}

fn checked_byte_len(capacity: usize) -> Result<usize, PlaceError> {
    if !capacity.is_power_of_two() {
        return Err(PlaceError::NotPowerOfTwo { capacity });
    }
    capacity
        .checked_add(PAYLOAD)
        .and_then(whole_lines)
        .ok_or(PlaceError::TooLong)
}

/// A side that stored anything before is not joined anew: its index and what it meant are unknown.
fn unused(region: &Region, index: usize, closed: usize) -> Result<(), PlaceError> {
    let fresh = region.word(index).load(Ordering::Relaxed) == 0 && !is_set(region, closed);
    if fresh { Ok(()) } else { Err(PlaceError::Used) }
}

fn is_set(region: &Region, flag: usize) -> bool {
    region.word(flag).load(Ordering::Acquire) != 0
}

fn set(region: &Region, flag: usize) {
    region.word(flag).store(1, Ordering::Release);
}

/// The number of bytes between two indices, checked before to be at most the capacity.
fn between(head: u64, tail: u64) -> usize {
    tail.wrapping_sub(head) as usize
}

/// Where in the payload an index is, as the capacity is a power of two.
fn position(index: u64, capacity: usize) -> usize {
    index as usize & (capacity - 1)
}

// The flags have a line of their own, written once, so that looking at them is cheap.
const TAIL: usize = 0;
const HEAD: usize = LINE;
const PRODUCER_CLOSED: usize = 2 * LINE;
const CONSUMER_CLOSED: usize = 2 * LINE + 8;
const PAYLOAD: usize = 3 * LINE;

#[cfg(not(loom))]
const PRODUCER: usize = 0;
#[cfg(not(loom))]
const CONSUMER: usize = 1;
