//! An offer as its peers see it: bytes in its slot, or where its parts are instead. What a slot says is another process's
//! input, and checked.

use std::ops::Range;

use crate::region::Region;

/// An offer as its peers see it.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub(super) head: &'a [u8],
    /// What lies in the slot behind the head: the rest of the offer, or where its parts are.
    pub(super) rest: &'a [u8],
    pub(super) kind: Kind<'a>,
}

/// Where the parts of an offer are.
#[derive(Clone, Copy)]
pub(super) enum Kind<'a> {
    /// In the slot.
    Here,
    /// In the member's heap.
    Heap(&'a Region),
    /// At addresses of the member's process.
    Away,
}

/// A part of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen<'a> {
    /// Its bytes.
    Here(&'a [u8]),
    /// The address in the member's process at which it begins, as that process says.
    Away(usize),
}

impl<'a> View<'a> {
    /// The first bytes of the offer, [`HEAD`](super::HEAD) or all.
    pub fn head(self) -> &'a [u8] {
        self.head
    }

    /// A part of what follows; none where the offer ends before it does, or has it in several places.
    pub fn part(self, range: Range<usize>) -> Option<Seen<'a>> {
        match self.kind {
            Kind::Here => self.rest.get(range).map(Seen::Here),
            _ if range.is_empty() => Some(Seen::Here(&[])),
            Kind::Away => self.start(&range).map(Seen::Away),
            Kind::Heap(heap) => {
                let start = self.start(&range)?;
                let end = start.checked_add(range.len()).filter(|end| *end <= heap.byte_len())?;
                // SAFETY: no thread of this process writes it: its owner, which may be one, has promised not to before
                // this seat is past viewing: see the board, *What is read where it is*.
                Some(Seen::Here(unsafe { heap.lend(start..end) }))
            }
        }
    }

    /// Where a part begins that lies in one of the places.
    pub(super) fn start(self, range: &Range<usize>) -> Option<usize> {
        let mut before: usize = 0;
        for place in self.rest.chunks_exact(size_of::<Place>()) {
            let (start, byte_len) = start_and_len(place)?;
            let end = before.checked_add(byte_len)?;
            if before <= range.start && range.end <= end {
                return start.checked_add(range.start - before);
            }
            before = end;
        }
        None
    }
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            Kind::Here => "here",
            Kind::Heap(_) => "in a heap",
            Kind::Away => "away",
        };
        write!(f, "View of {} bytes {kind}", self.rest.len())
    }
}

/// Where a part is in a heap or a process, as it lies in a slot.
pub(super) type Place = [u8; 2 * size_of::<u64>()];

pub(super) fn place(start: usize, byte_len: usize) -> Place {
    let mut place = Place::default();
    place[..8].copy_from_slice(&(start as u64).to_le_bytes());
    place[8..].copy_from_slice(&(byte_len as u64).to_le_bytes());
    place
}

fn start_and_len(place: &[u8]) -> Option<(usize, usize)> {
    let number = |bytes: &[u8]| usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok();
    Some((number(&place[..8])?, number(&place[8..])?))
}
