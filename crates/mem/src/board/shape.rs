//! Where the words and slots of a board are. Offsets only: it touches no memory.

use super::SLOTS;
use crate::gauge::Gauge;
use crate::region::{LINE, PlaceError, whole_lines};

/// Where everything of a board is. For each member: a line for the two words that are looked at often and stored once, one for the word
/// that is stored often, its gauge, then its slots in whole lines, so that nobody's offer slows another's.
///
/// A slot begins with the number of the offer in it, its length and kind, and the first [`HEAD`] bytes of the offer follow on
/// the same line: whoever learns of an offer has fetched what it needs to know of it. What follows starts with
/// a line of its own, because copies to and from an odd place take twice as long, unless it is so short that it lies in
/// front of the number, where it is fetched with it.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) members: usize,
    pub(super) slot_byte_len: usize,
    slot_stride: usize,
    member_stride: usize,
    pub(super) byte_len: usize,
}

impl Shape {
    pub(super) fn new(members: usize, slot_byte_len: usize) -> Result<Shape, PlaceError> {
        if members == 0 {
            return Err(PlaceError::NoSuchMember { member: 0, members });
        }
        Shape::measured(members, slot_byte_len).ok_or(PlaceError::TooLong)
    }

    fn measured(members: usize, slot_byte_len: usize) -> Option<Shape> {
        let slot_stride = whole_lines(slot_byte_len.checked_add(LEAD)?)?;
        let member_stride = slot_stride.checked_mul(SLOTS)?.checked_add(WORDS + Gauge::BYTE_LEN)?;
        let byte_len = member_stride.checked_mul(members)?;
        Some(Shape { members, slot_byte_len, slot_stride, member_stride, byte_len })
    }

    pub(super) fn left(&self, member: usize) -> usize {
        member * self.member_stride
    }

    /// The word that says from which phase on a member's offers are given up.
    pub(super) fn given_up(&self, member: usize) -> usize {
        self.left(member) + WORD
    }

    /// The word that says up to which phase a member has read all that it will.
    pub(super) fn done(&self, member: usize) -> usize {
        self.left(member) + LINE
    }

    /// Where it is measured how far a member's successor is.
    pub(super) fn gauge(&self, member: usize) -> usize {
        self.left(member) + WORDS
    }

    /// The word that says which offer is in the slot where this one goes.
    pub(super) fn number(&self, member: usize, phase: u64) -> usize {
        self.offer(member, phase) - 2 * WORD
    }

    /// The word with the length of an offer, and whether it only refers to what is offered.
    pub(super) fn length(&self, member: usize, phase: u64) -> usize {
        self.offer(member, phase) - WORD
    }

    /// Where what follows the head of an offer begins, when it is this long.
    pub(super) fn rest(&self, member: usize, phase: u64, byte_len: usize) -> usize {
        match byte_len {
            ..=SHORT => self.number(member, phase) - SHORT,
            _ => self.offer(member, phase) + HEAD,
        }
    }

    /// Where the bytes of an offer begin.
    pub(super) fn offer(&self, member: usize, phase: u64) -> usize {
        let slot = ((phase - 1) % SLOTS as u64) as usize;
        self.gauge(member) + Gauge::BYTE_LEN + slot * self.slot_stride + LEAD
    }
}

/// The bytes of an offer that lie before its first whole line.
pub const HEAD: usize = if cfg!(loom) { 0 } else { 32 };

/// What is in front of an offer: unused up to the short ones and the words.
const LEAD: usize = LINE - HEAD;
const WORD: usize = size_of::<u64>();
const WORDS: usize = 2 * LINE;
/// The most bytes that fit the line of the words together with the head, where a processor's line is half of ours.
const SHORT: usize = if cfg!(loom) { 0 } else { LINE / 2 - HEAD - 2 * WORD };
const _: () = assert!(LEAD >= 2 * WORD + SHORT && LEAD.is_multiple_of(WORD) && SHORT.is_multiple_of(WORD));
