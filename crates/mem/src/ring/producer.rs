//! The writing side of a ring.

use super::{
    CONSUMER_CLOSED, HEAD, PAYLOAD, PRODUCER_CLOSED, RingError, TAIL, between, gauge_of, is_set, position, set,
    to_line, unused,
};
use crate::gauge::{Gauge, Way};
use crate::region::{LINE, PlaceError, Region};
use crate::sync::Ordering;

/// The writing side. Dropping it closes the ring.
pub struct Producer {
    region: Region,
    capacity: usize,
    tail: u64,
    seen_head: u64,
    closed: bool,
    /// How far the consumer is, where that is measured.
    pub(super) gauge: Option<Gauge>,
}

impl Producer {
    /// Writes as many of `bytes` as there is room for; zero when the ring is full.
    ///
    /// # Errors
    ///
    /// [`Closed`](RingError::Closed) when either side closed the ring, [`Corrupt`](RingError::Corrupt) when the
    /// consumer's index is nonsense.
    pub fn try_write(&mut self, bytes: &[u8]) -> Result<usize, RingError> {
        self.try_write_parts([bytes, &[]])
    }

    /// The same for two parts, one after the other, which the consumer sees at once.
    ///
    /// # Errors
    ///
    /// As [`try_write`](Producer::try_write).
    pub fn try_write_parts(&mut self, parts: [&[u8]; 2]) -> Result<usize, RingError> {
        self.check_open()?;
        let wanted = parts[0].len() + parts[1].len();
        let mut room = self.room(wanted)?;
        let written = wanted.min(room);
        for part in parts {
            let part = &part[..part.len().min(room)];
            self.put(part);
            room -= part.len();
        }
        self.show(written);
        Ok(written)
    }

    /// The same for a head and a body that begins at the next line: the head goes only with some of the body.
    ///
    /// # Errors
    ///
    /// As [`try_write`](Producer::try_write).
    pub fn try_write_led(&mut self, head: &[u8], body: &[u8]) -> Result<usize, RingError> {
        self.check_open()?;
        let gap = to_line(self.tail.wrapping_add(head.len() as u64));
        let lead = head.len() + gap;
        let of_body = self.room(lead + body.len())?.saturating_sub(lead).min(body.len());
        if of_body == 0 {
            return Ok(0);
        }
        self.put(head);
        self.tail = self.tail.wrapping_add(gap as u64);
        self.put(&body[..of_body]);
        self.show(head.len() + of_body);
        Ok(head.len() + of_body)
    }

    /// Whether so many bytes can be written at once.
    pub fn has_room(&mut self, byte_len: usize) -> bool {
        self.room(byte_len).is_ok_and(|room| room >= byte_len)
    }

    /// Says that the next message is probably as long as the last, of so many bytes: its lines come back from the consumer, who has
    /// read them, while it looks at the last one.
    pub fn expect_another(&self, byte_len: usize) {
        // Not the line that the consumer reads now.
        let start = self.position().next_multiple_of(LINE);
        let end = self.capacity.min(start + byte_len);
        if start < end && self.way(byte_len) == Way::Lines {
            self.region.expect_writes(PAYLOAD + start..PAYLOAD + end);
        }
    }

    /// That neither side has closed the ring.
    fn check_open(&self) -> Result<(), RingError> {
        if self.closed || self.is_closed() { Err(RingError::Closed) } else { Ok(()) }
    }

    /// Shows the consumer what was written, this many bytes.
    fn show(&mut self, written: usize) {
        if written > 0 {
            self.region.word(TAIL).store(self.tail, Ordering::Release);
            if let Some(gauge) = &mut self.gauge {
                gauge.passed(written, &self.region);
            }
        }
    }

    /// Writes bytes that there is room for, without showing them.
    fn put(&mut self, bytes: &[u8]) {
        let way = self.way(bytes.len());
        let (first, second) = bytes.split_at(bytes.len().min(self.capacity - self.position()));
        // SAFETY: these bytes lie from the tail up to the head plus the capacity, where the consumer does not read.
        unsafe { self.region.write(PAYLOAD + self.position(), first, way) };
        // SAFETY: as above; the rest wraps around to the start.
        unsafe { self.region.write(PAYLOAD, second, way) };
        self.tail = self.tail.wrapping_add(bytes.len() as u64);
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
        Ok(Producer { region, capacity, tail: 0, seen_head: 0, closed: false, gauge: gauge_of(capacity) })
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

    /// In which way so many bytes are written.
    fn way(&self, byte_len: usize) -> Way {
        self.gauge.as_ref().map_or(Way::Lines, |gauge| gauge.way(byte_len))
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
