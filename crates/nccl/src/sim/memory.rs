//! Simulated memory: bytes, who used them last, and what is done with what was freed. Addresses are never given out twice.

use std::collections::BTreeMap;
use std::panic::Location;

use super::finding::{Access, Finding};
use super::order::{Actor, Order};
use crate::api::Span;

/// All memory of all ranks.
#[derive(Debug, Default)]
pub(super) struct Memory {
    blocks: BTreeMap<u64, Block>,
    next: u64,
    /// What is in use, by rank: bytes of devices, bytes of the host.
    pub(super) in_use: BTreeMap<usize, (usize, usize)>,
}

#[derive(Debug)]
struct Block {
    rank: usize,
    is_device: bool,
    bytes: Vec<u8>,
    uses: Vec<Use>,
    freed: Option<&'static Location<'static>>,
}

/// One use of a part of a block that something later might have to be ordered after.
#[derive(Clone, Debug)]
struct Use {
    start: usize,
    end: usize,
    actor: Actor,
    moment: u64,
    access: Access,
}

/// Who uses memory, and what that one knows.
#[derive(Clone, Copy)]
pub(super) struct User<'a> {
    pub(super) rank: usize,
    pub(super) actor: Actor,
    pub(super) order: &'a Order,
    /// The user's own moment.
    pub(super) moment: u64,
    pub(super) what: &'static str,
    pub(super) site: &'static Location<'static>,
}

impl Memory {
    /// New memory, full of what nobody should rely on.
    pub(super) fn allocate(&mut self, rank: usize, is_device: bool, byte_len: usize) -> Span {
        let base = FIRST + self.next;
        self.next += (byte_len as u64).next_multiple_of(PAGE) + PAGE;
        let bytes = vec![FRESH; byte_len];
        self.blocks.insert(base, Block { rank, is_device, bytes, uses: Vec::new(), freed: None });
        *self.count(rank, is_device) += byte_len;
        Span::new(base, byte_len)
    }

    /// Takes memory back, which is then in quarantine for ever. False where it is not one.
    pub(super) fn free(&mut self, span: Span, user: User<'_>, found: &mut Vec<Finding>) -> bool {
        if self.blocks.get(&span.address()).is_none_or(|block| !block.is_all(span)) {
            return false;
        }
        self.touch(span, true, user, found);
        let Some(block) = self.blocks.get_mut(&span.address()) else { return false };
        block.freed = Some(user.site);
        block.bytes.fill(FREED);
        let (rank, is_device) = (block.rank, block.is_device);
        *self.count(rank, is_device) -= span.byte_len();
        true
    }

    /// Whether a span is memory of the host.
    pub(super) fn is_host(&self, span: Span) -> bool {
        self.find(span).is_some_and(|(block, _)| !block.is_device)
    }

    /// Whose memory a span is.
    pub(super) fn owner(&self, span: Span) -> Option<usize> {
        self.find(span).map(|(block, _)| block.rank)
    }

    /// Where the memory begins that a span lies in.
    pub(super) fn base_of(&self, span: Span) -> Option<u64> {
        self.place(span).map(|(base, _)| base)
    }

    /// Whether a span is live memory.
    pub(super) fn is_live(&self, span: Span) -> bool {
        span.is_empty() || self.find(span).is_some_and(|(block, _)| block.freed.is_none())
    }

    /// Notes a use and finds what it conflicts with; whether the memory may be used at all.
    pub(super) fn touch(&mut self, span: Span, writes: bool, user: User<'_>, found: &mut Vec<Finding>) -> bool {
        if span.is_empty() {
            return true;
        }
        let access = Access { what: user.what, site: user.site, writes };
        let Some((base, offset)) = self.place(span) else {
            found.push(Finding::OutOfBounds { rank: user.rank, access });
            return false;
        };
        let Some(block) = self.blocks.get_mut(&base) else { return false };
        if let Some(freed) = block.freed {
            // It goes on, as it mostly does on a device; what it reads is poison.
            found.push(Finding::UseAfterFree { rank: block.rank, access, freed });
            return true;
        }
        block.note(offset, offset + span.byte_len(), access, user, found);
        true
    }

    /// The bytes of a span that may be used.
    pub(super) fn read(&self, span: Span) -> &[u8] {
        self.find(span).map_or(&[], |(block, offset)| &block.bytes[offset..offset + span.byte_len()])
    }

    /// The same, to be written.
    pub(super) fn write(&mut self, span: Span) -> &mut [u8] {
        let Some((base, offset)) = self.place(span) else { return &mut [] };
        self.blocks.get_mut(&base).map_or(&mut [], |block| &mut block.bytes[offset..offset + span.byte_len()])
    }

    fn find(&self, span: Span) -> Option<(&Block, usize)> {
        let (base, offset) = self.place(span)?;
        self.blocks.get(&base).map(|block| (block, offset))
    }

    fn place(&self, span: Span) -> Option<(u64, usize)> {
        let (&base, block) = self.blocks.range(..=span.address()).next_back()?;
        let offset = usize::try_from(span.address() - base).ok()?;
        (offset.checked_add(span.byte_len())? <= block.bytes.len()).then_some((base, offset))
    }

    fn count(&mut self, rank: usize, is_device: bool) -> &mut usize {
        let (device, host) = self.in_use.entry(rank).or_default();
        if is_device { device } else { host }
    }
}

impl Block {
    /// Whether a span is this block, which is still in use.
    fn is_all(&self, span: Span) -> bool {
        self.bytes.len() == span.byte_len() && self.freed.is_none()
    }

    fn note(&mut self, start: usize, end: usize, access: Access, user: User<'_>, found: &mut Vec<Finding>) {
        let overlaps = |earlier: &&Use| earlier.start < end && start < earlier.end;
        for earlier in self.uses.iter().filter(overlaps) {
            let conflicts = earlier.access.writes || access.writes;
            if conflicts && !user.order.knows(earlier.actor, earlier.moment) {
                let race = Finding::Race { rank: self.rank, first: earlier.access.clone(), second: access.clone() };
                if !found.contains(&race) {
                    found.push(race);
                }
            }
        }
        // Whoever is ordered after this one is ordered after all that it covers.
        self.uses.retain(|earlier| {
            let covered = start <= earlier.start && earlier.end <= end;
            let known = user.order.knows(earlier.actor, earlier.moment);
            !(covered && known && (access.writes || !earlier.access.writes))
        });
        self.uses.push(Use { start, end, actor: user.actor, moment: user.moment, access });
    }
}

/// Where memory begins.
const FIRST: u64 = 0x7000_0000_0000;
/// Between blocks lies at least so much that nobody has.
const PAGE: u64 = 4096;
/// What new memory is full of: as floats, numbers far from any that a test would use.
const FRESH: u8 = 0xcd;
/// What freed memory is full of.
const FREED: u8 = 0xdb;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn user(order: &Order, actor: Actor, moment: u64) -> User<'_> {
        User { rank: 2, actor, order, moment, what: "test", site: Location::caller() }
    }

    #[test]
    fn only_what_nothing_orders_is_a_race() {
        let (mut memory, mut found) = (Memory::default(), Vec::new());
        let span = memory.allocate(0, true, 16);
        let mut one = Order::default();
        let moment = one.tick(0);
        assert!(memory.touch(span, true, user(&one, 0, moment), &mut found));
        let mut other = one.clone();
        let moment = other.tick(1);
        assert!(memory.touch(span.part(0, 8).expect("within"), false, user(&other, 1, moment), &mut found));
        assert_eq!(found, []);
        // The first goes on without knowing of the second: it may read what the other reads, not write it.
        let moment = one.tick(0);
        memory.touch(span, false, user(&one, 0, moment), &mut found);
        memory.touch(span.part(8, 8).expect("within"), true, user(&one, 0, moment), &mut found);
        assert_eq!(found, []);
        memory.touch(span.part(7, 1).expect("within"), true, user(&one, 0, moment), &mut found);
        assert!(matches!(&found[..], [Finding::Race { first, .. }] if !first.writes), "{found:?}");
    }

    #[test]
    fn freed_memory_is_found_when_it_is_used() {
        let (mut memory, mut found) = (Memory::default(), Vec::new());
        let span = memory.allocate(2, true, 16);
        let mut order = Order::default();
        let moment = order.tick(0);
        assert!(memory.free(span, user(&order, 0, moment), &mut found) && found.is_empty());
        assert!(memory.touch(span, false, user(&order, 0, moment), &mut found));
        assert!(matches!(found[..], [Finding::UseAfterFree { rank: 2, .. }]));
        assert!(memory.read(span).iter().all(|&byte| byte == FREED));
        assert!(!memory.touch(Span::new(5, 1), false, user(&order, 0, moment), &mut found));
        assert!(!memory.free(span, user(&order, 0, moment), &mut found));
        assert_eq!(memory.in_use[&2], (0, 0));
    }
}
