//! Where the words and slots of a board are. Offsets only: it touches no memory.

use super::SLOTS;
use crate::region::{LINE, PlaceError, whole_lines};

/// Where everything of a board is. For each member: its words in lines of their own, then its slots in whole lines, so
/// that payload starts with a line and nobody's offer slows another's.
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
        let slot_stride = whole_lines(slot_byte_len)?;
        let member_stride = slot_stride.checked_mul(SLOTS)?.checked_add(WORDS_BYTE_LEN)?;
        let byte_len = member_stride.checked_mul(members)?;
        Some(Shape { members, slot_byte_len, slot_stride, member_stride, byte_len })
    }

    pub(super) fn phase(&self, member: usize) -> usize {
        member * self.member_stride
    }

    pub(super) fn left(&self, member: usize) -> usize {
        self.phase(member) + WORD
    }

    /// The length of an offer lies beside the phase: whoever learns of the offer has fetched it along.
    pub(super) fn length(&self, member: usize, phase: u64) -> usize {
        self.phase(member) + (2 + slot_index(phase)) * WORD
    }

    pub(super) fn slot(&self, member: usize, phase: u64) -> usize {
        self.phase(member) + WORDS_BYTE_LEN + slot_index(phase) * self.slot_stride
    }
}

fn slot_index(phase: u64) -> usize {
    ((phase - 1) % SLOTS as u64) as usize
}

const WORD: usize = size_of::<u64>();
const WORDS_BYTE_LEN: usize = ((2 + SLOTS) * WORD).next_multiple_of(LINE);
