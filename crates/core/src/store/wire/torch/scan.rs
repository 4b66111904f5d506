//! Finds where a message without a frame ends, remembering how far it came, so that bytes are looked at once.

use crate::store::Limits;
use crate::store::wire::Malformed;

/// A field of a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// So many bytes.
    Fixed(usize),
    /// A length and a key.
    Key,
    /// A length and a value.
    Value,
    /// An unsigned count, and these fields that many times.
    Many(&'static [Part]),
    /// A signed count of keys, and the keys.
    Listed,
    /// A signed number, and a value where it is above zero.
    Popped,
}

/// How far a message was looked at.
#[derive(Debug)]
pub(super) struct Scan {
    /// Where the next field begins.
    at: usize,
    /// The fields to come once `left` is 0.
    parts: &'static [Part],
    /// The fields that repeat, and how many are left over all rounds.
    round: &'static [Part],
    left: usize,
}

impl Scan {
    /// A message of `parts`, beginning at `at`.
    pub(super) fn new(at: usize, parts: &'static [Part]) -> Scan {
        Scan { at, parts, round: &[], left: 0 }
    }

    /// A message of as many values.
    pub(super) fn values(count: usize) -> Scan {
        Scan { at: 0, parts: &[], round: &[Part::Value], left: count }
    }

    /// The message's length, once `bytes` hold all of it. They begin where the message does, and only ever grow.
    pub(super) fn end(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, Malformed> {
        while let Some(part) = self.upcoming() {
            if !self.pass(part, bytes.get(self.at..).unwrap_or_default(), limits)? {
                return Ok(None);
            }
        }
        Ok(Some(self.at))
    }

    fn upcoming(&self) -> Option<Part> {
        match self.left {
            0 => self.parts.first().copied(),
            left => Some(self.round[self.round.len() - 1 - (left - 1) % self.round.len()]),
        }
    }

    /// Goes past `part` if `rest` holds all of it.
    fn pass(&mut self, part: Part, rest: &[u8], limits: &Limits) -> Result<bool, Malformed> {
        if let Part::Fixed(len) = part {
            return Ok(self.take(len, rest));
        }
        let Some(head) = rest.first_chunk().copied().map(u64::from_le_bytes) else { return Ok(false) };
        match part {
            Part::Fixed(_) => Ok(false),
            Part::Key => self.bytes("a key", head, limits.key_byte_len(), rest, limits),
            Part::Value => self.bytes("a value", head, limits.value_byte_len(), rest, limits),
            Part::Many(round) => self.repeat(head, round, rest, limits),
            Part::Listed => self.repeat(natural(head)?, &[Part::Key], rest, limits),
            Part::Popped => self.repeat(natural(head)?.min(1), &[Part::Value], rest, limits),
        }
    }

    fn bytes(
        &mut self,
        what: &'static str,
        len: u64,
        limit: usize,
        rest: &[u8],
        limits: &Limits,
    ) -> Result<bool, Malformed> {
        check(what, len, limit)?;
        self.fits(len, limits)?;
        Ok(self.take(LENGTH + len as usize, rest))
    }

    fn repeat(&mut self, count: u64, round: &'static [Part], rest: &[u8], limits: &Limits) -> Result<bool, Malformed> {
        check("a number of keys", count, limits.key_count())?;
        let fields = count.saturating_mul(round.len() as u64);
        self.fits(fields.saturating_mul(LENGTH as u64), limits)?;
        let taken = self.take(LENGTH, rest);
        (self.round, self.left) = (round, fields as usize);
        Ok(taken)
    }

    /// Fails where `len` bytes behind the next length would make the message too long.
    fn fits(&self, len: u64, limits: &Limits) -> Result<(), Malformed> {
        check("a message", len.saturating_add((self.at + LENGTH) as u64), limits.message_byte_len())
    }

    fn take(&mut self, len: usize, rest: &[u8]) -> bool {
        if rest.len() < len {
            return false;
        }
        self.at += len;
        match self.left {
            0 => self.parts = &self.parts[1..],
            left => self.left = left - 1,
        }
        true
    }
}

fn natural(number: u64) -> Result<u64, Malformed> {
    let value = number as i64;
    if value < 0 { Err(Malformed::Negative { what: "a count", value }) } else { Ok(number) }
}

fn check(what: &'static str, len: u64, limit: usize) -> Result<(), Malformed> {
    if len > limit as u64 { Err(Malformed::Length { what, len, limit: limit as u64 }) } else { Ok(()) }
}

const LENGTH: usize = 8;
