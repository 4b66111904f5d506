//! Where everything of a group is in its segment. Numbers only, decided from numbers alone: it touches no memory.

use std::sync::atomic::AtomicU64;

use phalanx_core::{Error, Result, fnv};
use phalanx_mem::{LINE, board, ring};

use super::reach;
use crate::{bell, fate, roll, slots};

/// The map of one group's segment. Every part starts with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentMap {
    pub(crate) size: usize,
    epoch: u32,
    group: u64,
    pub(crate) ring_byte_len: usize,
    /// One word a rank, which says that it has left.
    pub(crate) departures: usize,
    /// Who can read whose process: see `reach`.
    pub(crate) reach: usize,
    bells: usize,
    pub(crate) roll: usize,
    pub(crate) fate: usize,
    pub(crate) board: usize,
    rings: usize,
    /// Up to where the memory is taken from the start.
    pub(crate) reserved: usize,
    heaps: usize,
    pub(crate) heap_byte_len: usize,
    pub(crate) byte_len: usize,
}

/// What a ring is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    Collectives = 0,
    Messages = 1,
}

impl SegmentMap {
    /// The map for `size` ranks of this group and epoch.
    pub(crate) fn new(size: usize, group: u64, epoch: u32, heap_byte_len: usize) -> Result<SegmentMap> {
        if !(1..=MOST_RANKS).contains(&size) {
            return Err(Error::setup("ranks of one host", format!("{size} is not in 1..={MOST_RANKS}")));
        }
        SegmentMap::measured(size, group, epoch, heap_byte_len)
            .ok_or_else(|| Error::setup("shared segment", format!("{size} ranks need more than any memory")))
    }

    /// The first words of the segment, from which a rank sees that it has the right one.
    pub(crate) fn header(&self) -> [u64; HEADER] {
        let numbers = [self.size, slots::of_offers(self.size).byte_len, self.ring_byte_len, self.byte_len];
        let [size, offer, ring, byte_len] = numbers.map(|number| number as u64);
        [MAGIC, VERSION, self.group, self.epoch.into(), size, offer, ring, byte_len]
    }

    /// A hash of all of it. Ranks whose hashes are the same look for everything at the same place.
    pub(crate) fn hash(&self) -> u64 {
        let parts = [self.departures, self.reach, self.bells, self.roll, self.fate, self.board, self.rings, self.heaps];
        let words = self.header().into_iter().chain(parts.map(|part| part as u64));
        fnv::hash64(words.flat_map(u64::to_le_bytes))
    }

    /// The bell of a rank.
    pub(crate) fn bell(&self, rank: usize) -> usize {
        self.bells + rank * BELL_STRIDE
    }

    /// The heap of a rank.
    pub(crate) fn heap(&self, rank: usize) -> usize {
        self.heaps + rank * (self.heap_byte_len + APART)
    }

    /// The ring that carries bytes `from` a rank `to` another.
    pub(crate) fn ring(&self, traffic: Traffic, from: usize, to: usize) -> usize {
        debug_assert!(from != to && from.max(to) < self.size);
        let to = to - usize::from(to > from);
        let number = (traffic as usize * self.size + from) * (self.size - 1) + to;
        self.rings + number * ring::byte_len(self.ring_byte_len).unwrap_or_default()
    }

    fn measured(size: usize, group: u64, epoch: u32, heap_byte_len: usize) -> Option<SegmentMap> {
        let ring_byte_len = ring_byte_len(size);
        let rings = size.checked_mul(size - 1)?.checked_mul(TRAFFICS)?;
        let mut end = HEADER.checked_mul(WORD)?;
        let mut part = |byte_len: usize| {
            let start = end.checked_next_multiple_of(LINE)?;
            end = start.checked_add(byte_len)?;
            Some(start)
        };
        let departures = part(size.checked_mul(WORD)?)?;
        let reach = part(reach::words(size).checked_mul(WORD)?)?;
        let bells = part(size.checked_mul(BELL_STRIDE)?)?;
        let roll = part(roll::words(size).checked_mul(WORD)?)?;
        let fate = part(fate::words(size).checked_mul(WORD)?)?;
        let board = part(board::byte_len(size, slots::of_offers(size))?)?;
        let rings = part(ring::byte_len(ring_byte_len)?.checked_mul(rings)?)?;
        let reserved = part(0)?;
        let heap_byte_len = heap_byte_len.checked_next_multiple_of(PAGE)?;
        let heaps = reserved.checked_next_multiple_of(PAGE)?;
        let strides = heap_byte_len.checked_add(APART)?.checked_mul(size)?;
        let byte_len = heaps.checked_add(strides).filter(|len| isize::try_from(*len).is_ok())?;
        Some(SegmentMap {
            size,
            epoch,
            group,
            ring_byte_len,
            departures,
            reach,
            bells,
            roll,
            fate,
            board,
            rings,
            reserved,
            heaps,
            heap_byte_len,
            byte_len,
        })
    }
}

/// Room for what is under way on a link: with many ranks there are many links, and less room for each.
fn ring_byte_len(size: usize) -> usize {
    let share = RINGS_BYTE_LEN / (TRAFFICS * size * size);
    (1 << share.ilog2()).min(slots::ring_byte_len(size))
}

/// What the ranks of one host can be told by a word of bits.
pub(crate) const MOST_RANKS: usize = 64;
/// The words of the header.
pub(crate) const HEADER: usize = 8;

/// "PHALANX" and a zero.
const MAGIC: u64 = u64::from_le_bytes(*b"PHALANX\0");
/// Of everything that lies in a segment, the words of a failure included.
const VERSION: u64 = 9;
const TRAFFICS: usize = 2;
/// About how much all rings of a host take.
const RINGS_BYTE_LEN: usize = 32 << 20;
/// What heaps begin and end with.
const PAGE: usize = 4096;
/// What lies between heaps. Ranks that take the same buffers have them at the same places of their heaps, which are of a round length.
/// Addresses that differ by that alone are one and the same to the first-level cache of some processors (Zen guesses by a hash of
/// bits 12 to 27), which then loses a rank's line with every look at another's.
const APART: usize = 37 * PAGE;
const WORD: usize = size_of::<AtomicU64>();
const BELL_STRIDE: usize = (bell::WORDS * size_of::<u32>()).next_multiple_of(LINE);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ops::Range;

    use super::*;

    const HEAP: usize = 10_000;

    /// Every part of a segment.
    fn parts(map: &SegmentMap) -> Vec<Range<usize>> {
        let ring = ring::byte_len(map.ring_byte_len).expect("a power of two");
        let part = |start: usize, byte_len: usize| start..start + byte_len;
        let mut parts = vec![
            part(0, HEADER * WORD),
            part(map.departures, map.size * WORD),
            part(map.roll, roll::words(map.size) * WORD),
            part(map.fate, fate::words(map.size) * WORD),
            part(map.board, board::byte_len(map.size, slots::of_offers(map.size)).expect("members")),
        ];
        parts.extend((0..map.size).map(|rank| part(map.bell(rank), 4)));
        for traffic in [Traffic::Collectives, Traffic::Messages] {
            let pairs = (0..map.size).flat_map(|from| (0..map.size).map(move |to| (from, to)));
            let pairs = pairs.filter(|(from, to)| from != to);
            parts.extend(pairs.map(|(from, to)| part(map.ring(traffic, from, to), ring)));
        }
        parts
    }

    #[test]
    fn parts_are_aligned_and_apart_and_inside_for_every_size() {
        for size in 1..=MOST_RANKS {
            let map = SegmentMap::new(size, 1, 2, HEAP).expect("a size");
            let mut parts = parts(&map);
            parts.extend((0..size).map(|rank| map.heap(rank)..map.heap(rank) + map.heap_byte_len));
            assert_eq!(parts.len(), 5 + 2 * size + 2 * size * (size - 1));
            parts.sort_by_key(|part| part.start);
            assert!(parts.iter().all(|part| part.start % LINE == 0 && !part.is_empty()), "{size} ranks");
            assert!(parts.windows(2).all(|pair| pair[0].end <= pair[1].start), "{size} ranks overlap");
            assert!(parts.last().is_some_and(|last| last.end <= map.byte_len), "{size} ranks");
            assert!(map.reserved < 96 << 20, "{size} ranks take {} bytes", map.reserved);
            assert!((4 << 10..=slots::ring_byte_len(size)).contains(&map.ring_byte_len), "{size} ranks");
        }
    }

    #[test]
    fn heaps_are_apart_by_no_round_length() {
        const ROUND: usize = 1 << 16;
        let map = SegmentMap::new(8, 1, 2, 64 << 30).expect("a size");
        let places: BTreeSet<usize> = (0..8).map(|rank| map.heap(rank) % ROUND).collect();
        assert_eq!(places.len(), 8);
    }

    #[test]
    fn sizes_beyond_the_limits_are_refused() {
        for size in [0, MOST_RANKS + 1, usize::MAX] {
            let error = SegmentMap::new(size, 0, 0, HEAP).expect_err("no such size");
            assert_eq!(error.to_string(), format!("ranks of one host: {size} is not in 1..=64"));
        }
    }

    #[test]
    fn maps_that_differ_have_other_hashes() {
        let numbers = [(2, 0, 0), (3, 0, 0), (2, 1, 0), (2, 0, 1)];
        let hashes =
            numbers.map(|(size, group, epoch)| SegmentMap::new(size, group, epoch, HEAP).expect("a size").hash());
        assert_eq!(BTreeSet::from(hashes).len(), numbers.len());
    }
}
