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
//! # Bodies that begin at a line
//!
//! Copies are up to twice as fast between places that are as far from the start of a line. So both sides can leave out what is
//! between a short head and the line at which a long body begins. Nothing tells of it in the ring: each counts the bytes that
//! it leaves out as written and as read, and each must do so at the same byte.
//!
//! # What is believed of the other side
//!
//! In a segment the other side's index is another process's input. It is read once, must not go back and must keep the
//! bytes between the indices within the capacity; any other value is [`Corrupt`](RingError::Corrupt). A side's own index
//! is never read back. What [`peek`](Consumer::peek) lends from a segment stays unchanged only while the producer's
//! process follows the protocol: see `Segment`, *Who is trusted with a segment*.

mod consumer;
#[cfg(all(test, loom))]
mod loom_model;
mod producer;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::gauge::Gauge;
use crate::region::{LINE, PlaceError, Region, whole_lines};
use crate::sync::Ordering;
#[cfg(not(loom))]
use crate::{Segment, claims::Purpose};

pub use consumer::Consumer;
pub use producer::Producer;

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
/// When the capacity is not a power of two, the offset not a multiple of [`LINE`], the part not inside
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
    let end = offset.checked_add(checked_byte_len(capacity)?).ok_or(PlaceError::TooLong)?;
    Region::in_segment(segment, offset..end, Purpose::Ring { capacity }, role)
}

fn checked_byte_len(capacity: usize) -> Result<usize, PlaceError> {
    if !capacity.is_power_of_two() {
        return Err(PlaceError::NotPowerOfTwo { capacity });
    }
    let rings = capacity.checked_add(PAYLOAD).and_then(whole_lines);
    let gauge = if capacity >= MEASURED { Gauge::BYTE_LEN } else { 0 };
    rings.and_then(|rings| rings.checked_add(gauge)).ok_or(PlaceError::TooLong)
}

/// Where it is measured how far the consumer of a ring of this capacity is, if it is.
fn gauge(capacity: usize) -> Option<usize> {
    (capacity >= MEASURED).then(|| PAYLOAD + capacity)
}

/// How far the consumer of a ring of this capacity is, if that is measured.
fn gauge_of(capacity: usize) -> Option<Gauge> {
    let of = if capacity >= Gauge::TURN { Gauge::in_turn } else { Gauge::new };
    gauge(capacity).map(of)
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

/// How many bytes there are from an index to the next line.
fn to_line(index: u64) -> usize {
    (LINE - position(index, LINE)) & (LINE - 1)
}

// The flags have a line of their own, written once, so that looking at them is cheap.
const TAIL: usize = 0;
const HEAD: usize = LINE;
const PRODUCER_CLOSED: usize = 2 * LINE;
const CONSUMER_CLOSED: usize = 2 * LINE + 8;
const PAYLOAD: usize = 3 * LINE;
/// Rings of less are those of many ranks, of which each has many: to measure with all of them would take more memory than they do.
const MEASURED: usize = 128 << 10;

#[cfg(not(loom))]
const PRODUCER: usize = 0;
#[cfg(not(loom))]
const CONSUMER: usize = 1;
