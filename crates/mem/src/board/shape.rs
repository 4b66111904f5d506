//! Where the words and slots of a board are. Offsets only: it touches no memory.

use super::{SLOTS, Slots};
use crate::gauge::Gauge;
use crate::region::{LINE, PlaceError, whole_lines};

/// Where everything of a board is. For each member: a line for the two words that are looked at often and stored once, one for the word
/// that is stored often, its gauge, its slots in whole lines, so that nobody's offer slows another's, and its room.
///
/// A slot begins with the number of the offer in it and its length, kind and place, and the first [`HEAD`] bytes of the offer follow on
/// the same line: whoever learns of an offer has fetched what it needs to know of it. What follows starts with
/// a line of its own, because copies to and from an odd place take twice as long, unless it is so short that it lies in
/// front of the number, where it is fetched with it. What is too long for the slot lies in the room.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) members: usize,
    pub(super) slot_byte_len: usize,
    pub(super) is_in_turn: bool,
    /// The bytes of a slot.
    slot_stride: usize,
    /// The bytes of a member's room that the longest offer takes.
    stride: usize,
    pub(super) room_byte_len: usize,
    member_stride: usize,
    pub(super) byte_len: usize,
}

impl Shape {
    pub(super) fn new(members: usize, slots: Slots) -> Result<Shape, PlaceError> {
        if members == 0 {
            return Err(PlaceError::NoSuchMember { member: 0, members });
        }
        Shape::measured(members, slots).ok_or(PlaceError::TooLong)
    }

    fn measured(members: usize, slots: Slots) -> Option<Shape> {
        let Slots { byte_len: slot_byte_len, are_in_turn: is_in_turn } = slots;
        let rest = whole_lines(slot_byte_len.saturating_sub(HEAD))?;
        let (slot_stride, stride) = (LINE + rest.min(NEAR), if rest > NEAR { rest } else { 0 });
        let room_byte_len = stride.checked_mul(SLOTS + usize::from(is_in_turn))?;
        let member_stride = room_byte_len.checked_add(WORDS + Gauge::BYTE_LEN + SLOTS * slot_stride)?;
        let byte_len = member_stride.checked_mul(members)?;
        // What does not fit the word that says it.
        let is_told = slot_byte_len <= Told::MOST_BYTES && room_byte_len / LINE <= Told::MOST_LINES;
        let shape =
            Shape { members, slot_byte_len, is_in_turn, slot_stride, stride, room_byte_len, member_stride, byte_len };
        is_told.then_some(shape)
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

    /// The word with the length of an offer, where it lies, and whether it only refers to what is offered.
    pub(super) fn told(&self, member: usize, phase: u64) -> usize {
        self.offer(member, phase) - WORD
    }

    /// Where what follows the head of an offer begins, when it is this long and has this place in the room, if it lies there.
    pub(super) fn rest(&self, member: usize, phase: u64, place: usize, byte_len: usize) -> usize {
        match byte_len {
            _ if byte_len <= SHORT => self.number(member, phase) - SHORT,
            _ if is_near(byte_len) => self.offer(member, phase) + HEAD,
            _ => self.room(member) + place,
        }
    }

    /// The place of an offer in the room that no offer shares with it which may still be viewed: that of its slot.
    pub(super) fn own_place(&self, phase: u64) -> usize {
        slot(phase) * self.stride
    }

    /// The same for an offer of this length behind `last`, where the offer before ended.
    pub(super) fn place_behind(&self, last: usize, byte_len: usize) -> usize {
        if last + byte_len <= self.room_byte_len { last } else { 0 }
    }

    /// Where the bytes of an offer begin.
    pub(super) fn offer(&self, member: usize, phase: u64) -> usize {
        self.slots(member) + slot(phase) * self.slot_stride + LEAD
    }

    fn slots(&self, member: usize) -> usize {
        self.gauge(member) + Gauge::BYTE_LEN
    }

    fn room(&self, member: usize) -> usize {
        self.slots(member) + SLOTS * self.slot_stride
    }
}

/// Whether what follows a head lies in the slot.
pub(super) fn is_near(byte_len: usize) -> bool {
    byte_len <= NEAR
}

fn slot(phase: u64) -> usize {
    ((phase - 1) % SLOTS as u64) as usize
}

/// What the word of a slot tells of the offer in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) byte_len: usize,
    /// Where in the member's room it lies.
    pub(super) place: usize,
    pub(super) kind: u64,
}

impl Told {
    const MOST_BYTES: usize = (1 << PLACE_SHIFT) - 1;
    const MOST_LINES: usize = (1 << (KIND_SHIFT - PLACE_SHIFT)) - 1;

    /// As a word. All parts are as short as a shape lets them be.
    pub(super) fn pack(self) -> u64 {
        self.byte_len as u64 | ((self.place / LINE) as u64) << PLACE_SHIFT | self.kind
    }

    pub(super) fn unpack(word: u64) -> Told {
        let part = |shift: u32, most: usize| (word >> shift) as usize & most;
        let place = part(PLACE_SHIFT, Told::MOST_LINES) * LINE;
        Told { byte_len: part(0, Told::MOST_BYTES), place, kind: word >> KIND_SHIFT << KIND_SHIFT }
    }
}

/// The bytes of an offer that lie before its first whole line.
pub const HEAD: usize = if cfg!(loom) { 0 } else { 32 };

/// What is in front of an offer: unused up to the short ones and the words.
const LEAD: usize = LINE - HEAD;
const WORD: usize = size_of::<u64>();
const WORDS: usize = 2 * LINE;
/// The lowest bits of the word that tells of an offer are its length, the highest its kind, and those between its place, in lines.
const PLACE_SHIFT: u32 = 32;
pub(super) const KIND_SHIFT: u32 = 62;
/// The most bytes that fit the line of the words together with the head, where a processor's line is half of ours.
const SHORT: usize = if cfg!(loom) { 0 } else { LINE / 2 - HEAD - 2 * WORD };
/// The most bytes that a slot has room for behind the head. So few are sooner written where the peers have read the last ones than in turn.
const NEAR: usize = if cfg!(loom) { 0 } else { 4 << 10 };
const _: () = assert!(LEAD >= 2 * WORD + SHORT && LEAD.is_multiple_of(WORD) && SHORT.is_multiple_of(WORD));
