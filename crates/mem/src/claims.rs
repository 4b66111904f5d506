//! Which parts of a segment are in use for what, within this process. It keeps safe callers apart; it guards no memory.
//!
//! # Why claims
//!
//! A ring or a board touches its payload with plain accesses, which is sound while all who reach the same bytes follow
//! its protocol. A claim makes that so: each role of a ring or board is taken once, and no other use may overlap.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::board::Slots;

/// What a part of a segment is used for. Two users of one part must agree on all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A row of this many words, each of this many bits.
    Cells { count: usize, bits: usize },
    /// A ring of this capacity.
    Ring { capacity: usize },
    /// The heap of a member of this process, which hands it out.
    Heap,
    /// The heap of a member of another process, read and written by one member of this process.
    PeersHeap,
    /// A board of these dimensions.
    Board { members: usize, slots: Slots },
}

/// The claimed parts of one segment: disjoint, each with its purpose and the roles taken.
#[derive(Default)]
pub(crate) struct Claims {
    by_start: BTreeMap<usize, Claimed>,
}

struct Claimed {
    end: usize,
    purpose: Purpose,
    roles: BTreeSet<usize>,
}

impl Claims {
    /// Whether the range may be copied in or out by words: it touches no row of cells, no ring and no board.
    pub(crate) fn allow_copy(&self, range: Range<usize>) -> bool {
        self.overlapping(range).next().is_none()
    }

    /// Takes a role in a part of the segment; false when that role or an overlapping part is taken, or there is no byte in it: what
    /// overlaps is found by parts whose ends rise.
    pub(crate) fn take(&mut self, range: Range<usize>, purpose: Purpose, role: usize) -> bool {
        if range.is_empty() {
            return false;
        }
        if let Some(claimed) = self.by_start.get_mut(&range.start) {
            return claimed.end == range.end && claimed.purpose == purpose && claimed.roles.insert(role);
        }
        let free = self.overlapping(range.clone()).next().is_none();
        if free {
            self.by_start.insert(range.start, Claimed { end: range.end, purpose, roles: BTreeSet::from([role]) });
        }
        free
    }

    /// Gives a role back, and the part with the last one.
    pub(crate) fn release(&mut self, start: usize, role: usize) {
        let Some(claimed) = self.by_start.get_mut(&start) else {
            return;
        };
        claimed.roles.remove(&role);
        if claimed.roles.is_empty() {
            self.by_start.remove(&start);
        }
    }

    /// The claimed parts that share a byte with `range`. As parts are disjoint, their ends rise with their starts.
    fn overlapping(&self, range: Range<usize>) -> impl Iterator<Item = &Claimed> {
        let before = if range.is_empty() { 0 } else { range.end };
        let from_last = self.by_start.range(..before).rev().map(|(_, claimed)| claimed);
        from_last.take_while(move |claimed| claimed.end > range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: Purpose = Purpose::Ring { capacity: 64 };
    const WORD: Purpose = Purpose::Cells { count: 1, bits: 64 };

    #[test]
    fn a_role_is_taken_once_and_can_be_taken_again_after_release() {
        let mut claims = Claims::default();
        assert!(claims.take(128..256, RING, 0));
        assert!(!claims.take(128..256, RING, 0));
        assert!(claims.take(128..256, RING, 1));
        claims.release(128, 0);
        assert!(claims.take(128..256, RING, 0));
    }

    #[test]
    fn a_part_without_a_byte_is_refused_and_hides_none_that_it_lies_in() {
        let mut claims = Claims::default();
        assert!(claims.take(0..1024, RING, 0));
        assert!(!claims.take(256..256, Purpose::Cells { count: 0, bits: 32 }, 0));
        assert!(!claims.take(384..512, RING, 0) && !claims.allow_copy(300..301));
    }

    #[test]
    fn parts_of_another_purpose_or_shape_may_not_overlap() {
        let mut claims = Claims::default();
        assert!(claims.take(128..256, RING, 0));
        assert!(!claims.take(128..256, Purpose::Ring { capacity: 32 }, 1));
        assert!(!claims.take(128..512, RING, 1));
        assert!(!claims.take(0..129, RING, 1));
        assert!(!claims.take(248..256, WORD, 0));
        assert!(claims.take(0..128, RING, 1));
        assert!(claims.take(256..264, WORD, 0));
        claims.release(0, 1);
        claims.release(128, 0);
        assert!(claims.take(0..256, RING, 0));
    }

    #[test]
    fn copies_pass_no_part_that_is_claimed() {
        let mut claims = Claims::default();
        assert!(claims.take(128..256, RING, 0));
        assert!(claims.allow_copy(0..128));
        assert!(claims.allow_copy(200..200));
        assert!(!claims.allow_copy(0..129));
        assert!(!claims.allow_copy(255..300));
        assert!(claims.allow_copy(256..300));
    }
}
