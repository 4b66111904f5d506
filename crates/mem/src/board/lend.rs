//! Memory that a member lends for one operation: its peers read and write it where it is, each a part of its own.
//!
//! # Why that is sound
//!
//! Whoever lends borrows the room mutably and touches only its own part of it until all peers have said, by the word of
//! [`try_settle`](Seat::try_settle), that they are done. The peers write through mappings of their own: a heap that a seat writes is claimed
//! by this seat alone of its process, so it is never the heap of a buffer of this process.
//!
//! A peer that was given up may still be writing, or may wake up an hour later and go on. So whoever gives an operation up
//! [takes back](Seat::take_back) what it lent: its process gets pages of its own in the place of those that it shares.

use std::ops::Range;

use super::view::{Kind, place};
use super::{BoardError, REFERS, Seat};
use crate::SegmentError;

/// What became of an offer to lend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loan {
    /// The offer cannot be made yet.
    NotNow,
    /// It is made, and the memory lent.
    Made,
    /// It is made and says that this member lends nothing, since the peers cannot reach the memory.
    Refused,
}

impl Seat {
    /// Offers `head` as the next phase, and with it `room`, where that lies in this member's heap, to be read and written by the peers until
    /// this seat [settles](Seat::try_settle). What the peers have written is there when it has.
    ///
    /// # Errors
    ///
    /// As [`try_offer`](Seat::try_offer).
    pub fn try_lend(&mut self, head: &[u8], room: &mut [u8]) -> Result<Loan, BoardError> {
        let Some(start) = self.shared_heap().and_then(|heap| heap.offset_of(room)) else {
            return Ok(if self.publish(head, &[], 0)? { Loan::Refused } else { Loan::NotNow });
        };
        if !self.publish(head, &[&place(start, room.len())], REFERS)? {
            return Ok(Loan::NotNow);
        }
        self.lent = Some((self.phase, start..start + room.len()));
        Ok(Loan::Made)
    }

    /// A part of what a member lent in this phase: one that no other member writes.
    ///
    /// # Errors
    ///
    /// As [`view`](Seat::view), and [`Corrupt`](BoardError::Corrupt) when the member has not lent so much.
    pub fn lent(&mut self, member: usize, phase: u64, part: Range<usize>) -> Result<&mut [u8], BoardError> {
        let corrupt = BoardError::Corrupt { member };
        let view = self.view(member, phase)?.ok_or(corrupt)?;
        let Kind::Heap(heap) = view.kind else { return Err(corrupt) };
        let start = view.start(&part).ok_or(corrupt)?;
        let end = start.checked_add(part.len()).filter(|end| *end <= heap.byte_len()).ok_or(corrupt)?;
        // SAFETY: no buffer of this process is in this heap, and no view of it lives, as this seat is borrowed: see above.
        Ok(unsafe { heap.lend_mut(start..end) })
    }

    /// Says that no peer has written what is lent, nor will: each sees what this one has seen.
    pub fn forgo(&mut self) {
        self.lent = None;
    }

    /// Gives up what is offered, and takes back what is lent, whatever the peers may still do: it stays as it is from now on. Nothing of
    /// this heap is lent or shown to peers any more.
    ///
    /// # Errors
    ///
    /// When the system has no memory for it.
    pub fn take_back(&mut self) -> Result<(), SegmentError> {
        self.give_up();
        match (self.lent.take(), self.heaps.get(self.member)) {
            (Some((_, room)), Some(heap)) => heap.part_with(room),
            _ => Ok(()),
        }
    }
}
