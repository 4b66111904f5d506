//! From a segment to one rank's ways to its peers. It neither waits nor decides who may come.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use phalanx_core::{Error, Result};
use phalanx_mem::board::Seat;
use phalanx_mem::{Cells, Heap, PlaceError, Segment, ring};

use super::map::{HEADER, SegmentMap, Traffic};
use super::reach;
use crate::bell::{self, Bell};
use crate::equipment::Links;
use crate::fate::{self, Fate};
use crate::memory::{BoardWindows, MemoryLink};
use crate::roll::{self, Roll};
use crate::slots;

/// One rank's share in a segment, which stays mapped as long as any of it lives.
pub(crate) struct Joined {
    pub(crate) links: Links,
    pub(crate) windows: Option<BoardWindows>,
    pub(crate) post: Links,
    pub(crate) bell: Arc<Bell>,
    pub(crate) fate: Arc<Fate>,
    /// One word a rank, not zero once it has left.
    pub(crate) departures: Cells<AtomicU64>,
    /// [`reach::words`] of them.
    pub(crate) reach: Cells<AtomicU64>,
    pub(crate) heap: Option<Arc<Heap>>,
}

/// A new segment for a group.
pub(crate) fn create(map: &SegmentMap) -> Result<Segment> {
    let segment = Segment::create_sparse(map.byte_len, map.reserved).map_err(shared)?;
    let header = map.header().map(u64::to_le_bytes);
    segment.copy_in(0, header.as_flattened()).map_err(shared)?;
    Ok(segment)
}

/// Takes the place of `rank`, which nobody may have taken before.
pub(crate) fn join(segment: Segment, map: &SegmentMap, rank: usize, windows: bool) -> Result<Joined> {
    join_fitted(segment, map, rank, windows, |_, bell| bell)
}

/// The same with bells to which `fit` has added what a rank with sockets is woken by.
pub(crate) fn join_fitted(
    segment: Segment,
    map: &SegmentMap,
    rank: usize,
    windows: bool,
    mut fit: impl FnMut(usize, Bell) -> Bell,
) -> Result<Joined> {
    check_header(&segment, map)?;
    segment.populate(map.reserved);
    let segment = Arc::new(segment);
    let word = |rank| Cells::in_segment(Arc::clone(&segment), map.bell(rank), bell::WORDS);
    let bell = |rank| word(rank).map(|word| Arc::new(fit(rank, Bell::shared(word))));
    let bells = (0..map.size).map(bell).collect::<Result<_, _>>().map_err(shared)?;
    place(&segment, map, rank, windows, bells).map_err(shared)
}

fn place(
    segment: &Arc<Segment>,
    map: &SegmentMap,
    rank: usize,
    windows: bool,
    bells: Vec<Arc<Bell>>,
) -> Result<Joined, PlaceError> {
    let cells = |start, count| Cells::in_segment(Arc::clone(segment), start, count);
    let roll = Roll::new(cells(map.roll, roll::words(map.size))?);
    let fate = Fate::new(cells(map.fate, fate::words(map.size))?, bells.clone(), roll);
    let departures = cells(map.departures, map.size)?;
    let reach = cells(map.reach, reach::words(map.size))?;
    let links = |traffic| links(segment, map, rank, traffic, &bells);
    let (links, post) = (links(Traffic::Collectives)?, links(Traffic::Messages)?);
    let seat = || Seat::in_segment(Arc::clone(segment), map.board, rank, map.size, slots::of_offers(map.size));
    let seat = if windows { Some(seat()?) } else { None };
    let heaps = || (0..map.size).map(|rank| map.heap(rank));
    let (windows, heap) = match seat {
        Some(seat) if map.heap_byte_len > 0 => {
            let seat = seat.with_heaps(segment, heaps(), map.heap_byte_len)?;
            let heap = Heap::in_segment(Arc::clone(segment), map.heap(rank), map.heap_byte_len)?;
            (Some(BoardWindows::new(seat, bells.clone())), Some(heap))
        }
        seat => (seat.map(|seat| BoardWindows::new(seat, bells.clone())), None),
    };
    Ok(Joined { links, windows, post, bell: Arc::clone(&bells[rank]), fate: Arc::new(fate), departures, reach, heap })
}

/// The links of `rank` for one kind of traffic.
fn links(
    segment: &Arc<Segment>,
    map: &SegmentMap,
    rank: usize,
    traffic: Traffic,
    bells: &[Arc<Bell>],
) -> Result<Links, PlaceError> {
    let link = |peer: usize| -> Result<_, PlaceError> {
        let (out, into) = (map.ring(traffic, rank, peer), map.ring(traffic, peer, rank));
        let out = ring::producer_in(Arc::clone(segment), out, map.ring_byte_len)?;
        let into = ring::consumer_in(Arc::clone(segment), into, map.ring_byte_len)?;
        Ok(Box::new(MemoryLink::new(out, into, Arc::clone(&bells[peer]))) as _)
    };
    (0..map.size).map(|peer| if peer == rank { Ok(None) } else { link(peer).map(Some) }).collect()
}

/// That the segment is one of this group, as this program would have made it.
fn check_header(segment: &Segment, map: &SegmentMap) -> Result<()> {
    let mut found = [0; HEADER * size_of::<u64>()];
    segment.copy_out(0, &mut found).map_err(shared)?;
    let expected = map.header().map(u64::to_le_bytes);
    if segment.byte_len() == map.byte_len && found == expected.as_flattened() {
        return Ok(());
    }
    Err(Error::setup("shared segment", "it is none of this group and version"))
}

fn shared(error: impl std::fmt::Display) -> Error {
    Error::setup("shared segment", error)
}

#[cfg(test)]
mod tests {
    use phalanx_core::link::{Lease, LinkError, Windows};
    use phalanx_mem::board::HEAD;

    use super::*;

    fn map(epoch: u32) -> SegmentMap {
        SegmentMap::new(3, 7, epoch, 8192).expect("a size")
    }

    fn view(segment: &Segment) -> Segment {
        Segment::open(segment.fd().try_clone_to_owned().expect("free")).expect("sealed")
    }

    #[test]
    fn ranks_reach_each_other_and_places_are_taken_once() {
        let segment = create(&map(0)).expect("memfd");
        let mut ranks: Vec<Joined> =
            (0..3).map(|rank| join(view(&segment), &map(0), rank, true).expect("free")).collect();
        for (from, to) in [(0, 1), (2, 0), (1, 2)] {
            let word = [from as u8, to as u8];
            let sent = ranks[from].links[to].as_mut().expect("a link").try_send(&word);
            assert_eq!(sent, Ok(2));
            let mut came = [9; 2];
            assert_eq!(ranks[to].post[from].as_mut().expect("a link").try_recv(&mut came), Ok(0));
            assert_eq!(ranks[to].links[from].as_mut().expect("a link").try_recv(&mut came), Ok(2));
            assert_eq!(came, word);
        }
        let mut taken = ranks.remove(1);
        taken.windows.as_mut().expect("a seat").try_offer(&[1], &[], Lease::View).expect("open");
        drop(taken);
        assert!(join(view(&segment), &map(0), 1, true).is_err());
    }

    /// The board is one of all ranks, and so each call on it finds out who is to blame.
    #[test]
    fn whoever_writes_nonsense_on_the_board_is_named() {
        let segment = create(&map(0)).expect("memfd");
        let mut ranks: Vec<Joined> =
            (0..2).map(|rank| join(view(&segment), &map(0), rank, true).expect("free")).collect();
        let mut windows = ranks.remove(0).windows.expect("a seat");
        let length = map(0).heap(0) - map(0).board;
        segment.copy_in(map(0).board, &vec![0xee; length]).expect("in range");
        let end = (0..9).find_map(|_| windows.try_offer(&[7; HEAD], &[], Lease::View).err());
        let expected = LinkError::corrupt(1, "it has written nonsense on the board");
        assert_eq!(end, Some(expected.clone()));
        assert_eq!(windows.view(1, 0, 0..0).err(), Some(expected));
    }

    #[test]
    fn a_segment_of_another_group_is_refused() {
        let segment = create(&map(0)).expect("memfd");
        assert!(join(view(&segment), &map(1), 0, true).is_err());
        segment.copy_in(8, &[77]).expect("in range");
        let error = join(view(&segment), &map(0), 0, true).err().expect("another version");
        assert_eq!(error.to_string(), "shared segment: it is none of this group and version");
    }
}
