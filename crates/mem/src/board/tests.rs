//! The board as one process sees it, and what a hostile peer may write into a shared one.

use std::thread;

use super::*;
use crate::LINE;
use crate::gauge::{Gauge, Reach};

#[test]
fn a_head_that_does_not_fit_its_place_is_no_offer() {
    let mut seats = seats(2, 1 << 20).expect("memory");
    let mut offer = |head: usize, rest: usize| {
        seats[0].try_offer(&vec![1; head], &[&vec![1; rest]], (Lease::None, false)).map_err(|error| error.to_string())
    };
    for (head, rest) in [(HEAD + 1, 0), (1 << 13, 0), (HEAD + 1, 100), (HEAD - 1, 100), (0, 1)] {
        assert!(offer(head, rest).is_err(), "{head} and {rest} bytes");
    }
    assert_eq!((offer(HEAD - 1, 0), offer(HEAD, 100)), (Ok(true), Ok(true)));
}

#[test]
fn offers_are_seen_by_all_at_their_phase() {
    let mut seats = seats(3, 8).expect("memory");
    for (member, seat) in seats.iter_mut().enumerate() {
        assert_eq!((seat.member(), seat.members(), seat.slot_byte_len(), seat.phase()), (member, 3, 8, 0));
        assert_eq!(seat.offer(&vec![member as u8; member]), Ok(true));
    }
    for seat in &seats {
        for member in 0..3 {
            assert_eq!(seat.whole(member, 1), Ok(Some(vec![member as u8; member])));
        }
    }
}

#[test]
fn views_are_of_the_latest_phases_only() {
    let mut seats = seats(2, 1).expect("memory");
    assert_eq!(seats[0].whole(1, 0), Err(BoardError::OutOfTurn { phase: 0, own: 0 }));
    assert_eq!(seats[0].whole(1, 1), Err(BoardError::OutOfTurn { phase: 1, own: 0 }));
    assert_eq!(seats[0].whole(1, u64::MAX), Err(BoardError::OutOfTurn { phase: u64::MAX, own: 0 }));
    assert_eq!(seats[0].offer(&[1]), Ok(true));
    assert_eq!(seats[0].whole(1, 1), Ok(None));
    assert_eq!(seats[0].offer(&[2]), Ok(true));
    assert_eq!(seats[1].offer(&[3]), Ok(true));
    assert_eq!(seats[0].whole(1, 1), Ok(Some(vec![3])));
    assert_eq!(seats[0].offer(&[4]), Ok(true));
    assert_eq!(seats[0].whole(1, 1), Ok(Some(vec![3])));
    assert_eq!(seats[1].offer(&[5]), Ok(true));
    assert_eq!(seats[0].offer(&[6]), Ok(true));
    assert_eq!(seats[0].whole(1, 1), Err(BoardError::OutOfTurn { phase: 1, own: 4 }));
    assert_eq!(seats[0].whole(0, 2), Ok(Some(vec![2])));
}

#[test]
fn a_member_runs_ahead_by_the_spare_slots_only() {
    let mut seats = seats(2, 1).expect("memory");
    for behind in 0..10 {
        while seats[0].offer(&[0]).expect("nobody left") {}
        assert_eq!(seats[0].phase(), behind + RUN_AHEAD);
        assert_eq!(seats[1].offer(&[0]), Ok(true));
    }
}

#[test]
fn bad_calls_are_refused() {
    let mut seats = seats(2, 3).expect("memory");
    assert_eq!(seats[0].offer(&[0; 4]), Err(BoardError::TooLong { byte_len: 4, slot_byte_len: 3 }));
    assert_eq!(seats[0].offer(&[]), Ok(true));
    assert_eq!(seats[0].whole(2, 1), Err(BoardError::NoSuchMember { member: 2, members: 2 }));
    assert!(matches!(super::seats(0, 1), Err(PlaceError::NoSuchMember { .. })));
    assert!(matches!(super::seats(2, usize::MAX), Err(PlaceError::TooLong)));
    assert!(matches!(super::seats(1 << 40, 1 << 40), Err(PlaceError::TooLong)));
    assert!(matches!(super::seats(1, 1 << 32), Err(PlaceError::TooLong)), "a word says the length");
    assert!(matches!(super::seats(1 << 17, 1 << 31), Err(PlaceError::OutOfMemory(_))));
    assert_eq!(byte_len(0, 1), None);
    assert_eq!(byte_len(2, 0), Some(2 * ((2 + SLOTS) * LINE + Gauge::BYTE_LEN)));
}

#[test]
fn an_offer_beside_a_view_is_made_where_nothing_is_missing() {
    let mut seats = seats(2, HEAD + 300).expect("memory").into_iter();
    let (mut giver, mut peer) = (seats.next().expect("two"), seats.next().expect("two"));
    let (head, part, copied) = ([7; HEAD], [3; 300], (Lease::None, false));
    let mut seen = vec![];
    let mut fill = |room: &mut [u8], view: View<'_>| {
        room.copy_from_slice(&part);
        seen.push(view.rest.to_vec());
        true
    };
    assert_eq!(giver.try_offer(&head, &[&[1; 2]], copied), Ok(true));
    assert!(!giver.try_offer_beside(&head, &part, copied, (1, 1, Order::Beside), &mut fill), "nothing is there yet");
    assert_eq!(peer.try_offer(&head, &[&[9; 100]], copied), Ok(true));
    assert!(!giver.try_offer_beside(&head, &part, copied, (1, 2, Order::Beside), &mut fill), "out of turn");
    assert!(!giver.try_offer_beside(&head, &[3; 301], copied, (1, 1, Order::Beside), &mut fill), "too long");
    assert!(!giver.try_offer_beside(&head, &part, copied, (1, 1, Order::Beside), &mut |_, _| false), "not filled");
    assert_eq!(giver.phase(), 1);
    assert!(giver.try_offer_beside(&head, &part, copied, (1, 1, Order::Beside), &mut fill));
    while giver.try_offer_beside(&head, &part, copied, (1, 1, Order::Beside), &mut fill) {}
    assert_eq!(giver.phase(), 1 + RUN_AHEAD, "as far as it may look back, and run ahead");
    assert_eq!(seen, vec![vec![9; 100]; RUN_AHEAD as usize]);
    assert_eq!(peer.try_offer(&head, &[], copied), Ok(true));
    let view = peer.view(0, 2).expect("no error").expect("made");
    assert_eq!((view.head(), view.part(0..300)), (&head[..], Some(Seen::Here(&part[..]))));
}

#[test]
fn an_offer_before_a_view_is_made_where_nothing_is_missing() {
    let mut seats = seats(2, HEAD + 300).expect("memory").into_iter();
    let (mut giver, mut peer) = (seats.next().expect("two"), seats.next().expect("two"));
    let (head, part, copied) = ([7; HEAD], [3; 300], (Lease::None, false));
    let mut seen = vec![];
    let mut fill = |room: &mut [u8], view: View<'_>| {
        assert!(room.is_empty(), "it was copied before");
        seen.push(view.rest.to_vec());
        false
    };
    assert_eq!(giver.try_offer(&head, &[&[1; 2]], copied), Ok(true));
    assert!(!giver.try_offer_beside(&head, &part, copied, (1, 1, Order::After), &mut fill), "nothing is there yet");
    assert_eq!(peer.try_offer(&head, &[&[9; 100]], copied), Ok(true));
    assert!(!giver.try_offer_beside(&head, &[3; 301], copied, (1, 1, Order::After), &mut fill), "too long");
    assert_eq!(giver.phase(), 1);
    while giver.try_offer_beside(&head, &part, copied, (1, 1, Order::After), &mut fill) {}
    assert_eq!(giver.phase(), LOOKBACK as u64, "as far as it may look back when it has offered");
    assert_eq!(seen, vec![vec![9; 100]; LOOKBACK - 1]);
    assert_eq!(peer.try_offer(&head, &[], copied), Ok(true));
    let view = peer.view(0, 2).expect("no error").expect("made");
    assert_eq!((view.head(), view.part(0..300)), (&head[..], Some(Seen::Here(&part[..]))));
}

#[test]
fn whoever_left_reads_no_more_unless_it_owes_what_was_lent() {
    for (done, left, owes, reads) in [
        (false, false, false, true),
        (false, false, true, true),
        (false, true, false, false),
        // It left between two looks, and the next one tells.
        (false, true, true, true),
        (true, false, false, false),
        (true, true, false, false),
    ] {
        assert_eq!(is_reading(done, left, owes), reads, "done {done}, left {left}, owes {owes}");
    }
}

#[test]
fn whatever_the_distance_offers_are_seen_whole() {
    let seats = seats(2, HEAD + 9000).expect("memory");
    thread::scope(|scope| {
        for (member, mut seat) in seats.into_iter().enumerate() {
            scope.spawn(move || {
                for phase in 1..=500_u64 {
                    let part = |member: usize| vec![(phase as usize + member) as u8; 9000 - phase as usize];
                    seat.gauge.find(if phase.is_multiple_of(3) { Reach::Far } else { Reach::Near });
                    while !seat.try_offer(&[0; HEAD], &[&part(member)], (Lease::None, false)).expect("nobody left") {
                        thread::yield_now();
                    }
                    let seen = loop {
                        match seat.whole(1 - member, phase).expect("nobody left") {
                            Some(seen) => break seen,
                            None => thread::yield_now(),
                        }
                    };
                    assert!(seen[HEAD..] == part(1 - member), "phase {phase} of {}", 1 - member);
                }
            });
        }
    });
}

#[test]
fn a_seat_that_was_left_is_not_waited_for() {
    let mut seats = seats(2, 1).expect("memory");
    let mut leaver = seats.pop().expect("two");
    assert_eq!(leaver.offer(&[5]), Ok(true));
    leaver.leave();
    assert_eq!(leaver.offer(&[6]), Err(BoardError::Closed { member: 1 }));
    drop(leaver);
    let seat = &mut seats[0];
    for _ in 0..=RUN_AHEAD {
        assert_eq!(seat.offer(&[0]), Ok(true));
        if seat.phase() <= LOOKBACK as u64 {
            assert_eq!(seat.whole(1, 1), Ok(Some(vec![5])));
        }
    }
    assert_eq!(seat.whole(1, 2), Err(BoardError::Closed { member: 1 }));
    assert_eq!(seat.offer(&[0]), Err(BoardError::Closed { member: 1 }));
}

#[test]
fn threads_see_exactly_what_was_offered() {
    for (members, slot_byte_len, phases) in [(1, 10, 100), (2, 100, 3000), (4, 1000, 500), (3, 20_000, 300)] {
        play(seats(members, slot_byte_len).expect("memory"), phases);
        play(seats(members, Slots { byte_len: slot_byte_len, are_in_turn: true }).expect("memory"), phases);
    }
}

#[test]
fn no_offer_in_turn_lies_where_one_does_that_may_still_be_viewed() {
    let longest = 40 * LINE;
    let shape = Shape::new(1, Slots { byte_len: longest + HEAD, are_in_turn: true }).expect("small");
    let mut random = fastrand::Rng::with_seed(7);
    let mut wrapped = 0;
    for most in [longest, longest / 2, longest - LINE + 1] {
        let (mut last, mut held) = (0, std::collections::VecDeque::new());
        for _ in 0..20_000 {
            // Of the longest ones in a row as well, which leave the least room.
            let byte_len = if random.bool() { most } else { random.usize(1..=most) };
            let place = shape.place_behind(last, byte_len);
            wrapped += usize::from(place < last);
            last = (place + byte_len).next_multiple_of(LINE);
            let here = place..place + byte_len;
            assert!(here.end <= shape.room_byte_len);
            let mut held_by =
                held.iter().filter(|other: &&Range<usize>| other.start < here.end && here.start < other.end);
            assert_eq!(held_by.next(), None, "{here:?} of {held:?}");
            held.push_back(here);
            if held.len() == SLOTS {
                held.pop_front();
            }
        }
    }
    assert!(wrapped > 1000, "{wrapped}");
}

#[test]
fn what_is_told_of_an_offer_fits_a_word() {
    let most = Told { byte_len: (1 << 32) - 1, place: ((1 << 30) - 1) * LINE, kind: REFERS };
    for told in [most, Told { byte_len: 0, place: LINE, kind: AWAY }, Told { byte_len: 7, place: 0, kind: 0 }] {
        assert_eq!(Told::unpack(told.pack()), told);
    }
}

/// Every member offers and then views all offers of this phase, now and then also of the one before.
fn play(seats: Vec<Seat>, phases: u64) {
    thread::scope(|scope| {
        for seat in seats {
            scope.spawn(move || play_one(seat, phases));
        }
    });
}

fn play_one(mut seat: Seat, phases: u64) {
    for phase in 1..=phases {
        let bytes = bytes_of(seat.member(), phase, seat.slot_byte_len());
        while !seat.offer(&bytes).expect("nobody left early") {
            thread::yield_now();
        }
        let oldest = if phase % 3 == 0 { phase - 1 } else { phase };
        for (member, viewed) in
            (0..seat.members()).flat_map(|member| (oldest..=phase).map(move |viewed| (member, viewed)))
        {
            let expected = bytes_of(member, viewed, seat.slot_byte_len());
            let view = loop {
                match seat.whole(member, viewed).expect("nobody left early") {
                    Some(view) => break view,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(view, expected);
        }
    }
}

fn bytes_of(member: usize, phase: u64, slot_byte_len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(phase << 8 | member as u64);
    let byte_len = random.usize(0..=slot_byte_len);
    (0..byte_len).map(|_| random.u8(..)).collect()
}

mod in_segment {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::{Cells, SegmentError};

    const OFFSET: usize = LINE;
    const WORD: usize = size_of::<AtomicU64>();

    #[test]
    fn members_meet_across_mappings() {
        let (ours, theirs) = two_mappings(3, 50);
        let homes = [&ours, &theirs, &ours];
        let seat = |member: usize| Seat::in_segment(Arc::clone(homes[member]), OFFSET, member, 3, 50).expect("free");
        play((0..3).map(seat).collect(), 500);
    }

    #[test]
    fn a_seat_is_taken_once_and_its_board_has_one_shape() {
        let (ours, theirs) = two_mappings(2, 8);
        let join = |segment: &Arc<Segment>, member| Seat::in_segment(Arc::clone(segment), OFFSET, member, 2, 8);
        let seat = join(&ours, 0).expect("free");
        assert!(matches!(join(&ours, 0), Err(PlaceError::Segment(SegmentError::InUse { .. }))));
        let other_shape = Seat::in_segment(Arc::clone(&ours), OFFSET, 1, 2, 7);
        assert!(matches!(other_shape, Err(PlaceError::Segment(SegmentError::InUse { .. }))));
        assert!(matches!(join(&ours, 2), Err(PlaceError::NoSuchMember { member: 2, members: 2 })));
        drop(seat);
        assert!(matches!(join(&theirs, 0), Err(PlaceError::Used)));
        assert!(join(&theirs, 1).is_ok());
    }

    #[test]
    fn bad_places_are_refused() {
        let (ours, _) = two_mappings(2, 8);
        let join = |offset, slot_byte_len| Seat::in_segment(Arc::clone(&ours), offset, 0, 2, slot_byte_len).err();
        assert!(matches!(join(8, 8), Some(PlaceError::Segment(SegmentError::Misaligned { .. }))));
        assert!(matches!(join(2 * LINE, 8), Some(PlaceError::Segment(SegmentError::OutOfRange { .. }))));
        assert!(matches!(join(usize::MAX - LINE + 1, 8), Some(PlaceError::TooLong)));
        assert!(matches!(join(0, usize::MAX / 2), Some(PlaceError::TooLong)));
    }

    #[test]
    fn hostile_numbers_are_errors() {
        let (mut seat, raw, shape) = seat_and_raw();
        let number = |phase| &raw[shape.number(1, phase) / WORD];
        assert_eq!(seat.offer(&[1]), Ok(true));
        for nonsense in [1 + RUN_AHEAD + 1, u64::MAX, 1 << 63] {
            number(1).store(nonsense, Ordering::Release);
            assert_eq!(seat.whole(1, 1), Err(BoardError::Corrupt { member: 1 }));
        }
        number(1).store(1, Ordering::Release);
        while seat.offer(&[1]).expect("a possible number") {}
        assert_eq!(seat.phase(), 1 + RUN_AHEAD);
        assert_eq!(seat.whole(1, 4), Ok(None));
        number(2).store(u64::MAX, Ordering::Release);
        assert_eq!(seat.offer(&[1]), Err(BoardError::Corrupt { member: 1 }));
        number(4).store(u64::MAX, Ordering::Release);
        assert_eq!(seat.whole(1, 4), Err(BoardError::Corrupt { member: 1 }));
    }

    #[test]
    fn hostile_lengths_are_errors() {
        let (mut seat, raw, shape) = seat_and_raw();
        assert_eq!(seat.offer(&[1]), Ok(true));
        raw[shape.number(1, 1) / WORD].store(1, Ordering::Release);
        let length = &raw[shape.told(1, 1) / WORD];
        for nonsense in [9, u64::MAX, 1 << 63] {
            length.store(nonsense, Ordering::Release);
            assert_eq!(seat.whole(1, 1), Err(BoardError::Corrupt { member: 1 }));
        }
        length.store(8, Ordering::Release);
        assert_eq!(seat.whole(1, 1), Ok(Some(vec![0; 8])));
        // Our own words are checked like anybody's.
        raw[shape.told(0, 1) / WORD].store(99, Ordering::Release);
        assert_eq!(seat.whole(0, 1), Err(BoardError::Corrupt { member: 0 }));
    }

    #[test]
    fn hostile_places_are_errors() {
        const LONG: usize = 10_000;
        let (ours, theirs) = two_mappings(2, LONG);
        let mut seat = Seat::in_segment(ours, OFFSET, 0, 2, LONG).expect("free");
        let (count, shape) = (byte_len(2, LONG).expect("small") / WORD, Shape::new(2, LONG.into()).expect("small"));
        let raw = Cells::<AtomicU64>::in_segment(theirs, OFFSET, count).expect("free");
        assert_eq!(seat.offer(&[1]), Ok(true));
        raw[shape.number(1, 1) / WORD].store(1, Ordering::Release);
        let last = (shape.room_byte_len - LONG).next_multiple_of(LINE);
        let seen = |place| {
            raw[shape.told(1, 1) / WORD].store(Told { byte_len: LONG, place, kind: 0 }.pack(), Ordering::Release);
            seat.whole(1, 1).map(|view| view.map(|bytes| bytes.len()))
        };
        assert_eq!([seen(0), seen(last)], [Ok(Some(LONG)); 2]);
        assert_eq!([seen(last + LINE), seen(((1 << 30) - 1) * LINE)], [Err(BoardError::Corrupt { member: 1 }); 2]);
    }

    #[test]
    fn an_offer_is_viewed_as_it_was_seen_to_be_made_whatever_is_written_then() {
        let (mut seat, raw, shape) = seat_and_raw();
        let (number, length) = (&raw[shape.number(1, 1) / WORD], &raw[shape.told(1, 1) / WORD]);
        assert_eq!(seat.offer(&[1]), Ok(true));
        length.store(8, Ordering::Relaxed);
        number.store(1, Ordering::Release);
        let made = seat.made(1, 1).expect("no error").expect("made");
        for nonsense in [0, u64::MAX] {
            length.store(u64::MAX, Ordering::Relaxed);
            number.store(nonsense, Ordering::Release);
            assert_ne!(seat.whole(1, 1).map(|view| view.is_some()), Ok(true), "another look is none at this offer");
            assert_eq!(seat.offer(&[1]), Ok(true));
            let view = seat.view_of(made).expect("of the latest phases");
            assert_eq!((view.head, view.rest), (&[0; 8][..], &[][..]));
        }
        assert_eq!(seat.phase(), LOOKBACK as u64);
    }

    fn settled(seat: &mut Seat) -> bool {
        seat.try_settle().expect("nobody left")
    }

    /// Two members, each with its own mapping and a heap of a few pages.
    fn two_with_heaps() -> [(Seat, Arc<crate::Heap>); 2] {
        two_with_slots(4096)
    }

    fn two_with_slots(slot_byte_len: usize) -> [(Seat, Arc<crate::Heap>); 2] {
        const HEAP: usize = 4 * 4096;
        let board = byte_len(2, slot_byte_len).expect("small").next_multiple_of(4096);
        let first = Segment::create_sparse(board + 2 * HEAP, board).expect("memfd");
        let second = Segment::open(first.fd().try_clone_to_owned().expect("free")).expect("sealed");
        let join = |(member, segment): (usize, Segment)| {
            let segment = Arc::new(segment);
            let seat = Seat::in_segment(Arc::clone(&segment), 0, member, 2, slot_byte_len).expect("free");
            let seat = seat.with_heaps(&segment, [board, board + HEAP], HEAP).expect("free");
            (seat, crate::Heap::in_segment(segment, board + member * HEAP, HEAP).expect("free"))
        };
        [(0, first), (1, second)].map(join)
    }

    #[test]
    fn what_stays_in_a_heap_is_read_where_it_is() {
        let [(mut giver, heap), (mut reader, _)] = two_with_heaps();
        let mut buffer = heap.allocate(2 * 4096).expect("room");
        buffer.as_bytes_mut().iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
        let (head, given) = ([7; HEAD], buffer.as_bytes());
        // Longer than a slot, in two parts.
        assert_eq!(giver.try_offer(&head, &[&given[..100], &given[200..7000]], (Lease::View, false)), Ok(true));
        assert_eq!(reader.offer(&[]), Ok(true));
        let view = reader.view(0, 1).expect("made").expect("made");
        assert_eq!(view.head(), head);
        assert_eq!(view.part(0..100), Some(Seen::Here(&given[..100])));
        assert_eq!(view.part(100..6900), Some(Seen::Here(&given[200..7000])));
        assert_eq!(view.part(99..101), None, "across two parts");
        assert_eq!(view.part(6899..6901), None);
        assert_eq!(giver.whole(0, 1), Err(BoardError::Corrupt { member: 0 }), "its own is lent to the buffer");
        assert!(reader.take_borrowed() && !reader.take_borrowed());
        assert_eq!((settled(&mut giver), giver.readers()), (false, vec![1]));
        assert!(settled(&mut reader));
        assert_eq!((settled(&mut giver), giver.readers()), (true, vec![]));
    }

    #[test]
    fn what_is_given_up_unread_is_known_to_whoever_reads_it_and_nothing_before_it_is() {
        let [(mut giver, heap), (mut reader, _)] = two_with_heaps();
        let buffer = heap.allocate(4096).expect("room");
        let give = |giver: &mut Seat| giver.try_offer(&[0; HEAD], &[buffer.as_bytes()], (Lease::View, false));
        assert_eq!((give(&mut giver), reader.offer(&[])), (Ok(true), Ok(true)));
        assert!(reader.view(0, 1).is_ok_and(|view| view.is_some()) && settled(&mut reader));
        giver.take_back().expect("nothing");
        assert!(settled(&mut giver));
        assert_eq!(give(&mut giver), Ok(true));
        assert_eq!(give(&mut giver), Ok(true));
        giver.take_back().expect("nothing");
        // The first offer had been read before.
        assert_eq!(reader.given_up_by(), None);
        assert_eq!(reader.offer(&[]), Ok(true));
        assert_eq!((reader.given_up_by(), giver.given_up_by()), (Some(0), None));
    }

    #[test]
    fn a_reader_that_left_reads_no_more() {
        let [(mut giver, heap), (reader, _)] = two_with_heaps();
        let buffer = heap.allocate(4096).expect("room");
        assert_eq!(giver.try_offer(&[0; HEAD], &[buffer.as_bytes()], (Lease::View, false)), Ok(true));
        assert!(!settled(&mut giver));
        drop(reader);
        assert!(settled(&mut giver));
    }

    #[test]
    fn what_is_short_or_does_not_stay_or_is_elsewhere_is_copied() {
        let [(mut giver, heap), (mut reader, _)] = two_with_heaps();
        let buffer = heap.allocate(3 * 4096).expect("room");
        let (short, long, elsewhere) = (&buffer.as_bytes()[..1000], &buffer.as_bytes()[..5000], [1; 4000]);
        assert_eq!(giver.try_offer(&[0; HEAD], &[short], (Lease::View, false)), Ok(true));
        assert_eq!(giver.try_offer(&[0; HEAD], &[&long[..4000], &elsewhere[..50]], (Lease::View, false)), Ok(true));
        assert!(matches!(giver.try_offer(&[0; HEAD], &[long], (Lease::None, false)), Err(BoardError::TooLong { .. })));
        (0..2).for_each(|_| assert_eq!(reader.offer(&[]), Ok(true)));
        for (phase, byte_len) in [(1, 1000), (2, 4050)] {
            assert_eq!(reader.whole(0, phase).map(|whole| whole.map(|bytes| bytes.len())), Ok(Some(HEAD + byte_len)));
        }
        assert!(!reader.take_borrowed());
        assert!(settled(&mut giver));
    }

    #[test]
    fn what_may_be_fetched_stays_where_it_is_and_is_named_by_its_address() {
        let [(mut giver, heap), (mut reader, _)] = two_with_slots(18_000);
        let (given, fetched) = (vec![1; 40_000], (Lease::Fetch, true));
        let address = given.as_ptr().addr();
        // Longer than a slot, in two parts.
        assert_eq!(giver.try_offer(&[0; HEAD], &[&given[..20_000], &given[30_000..]], fetched), Ok(true));
        assert_eq!(reader.offer(&[]), Ok(true));
        let view = reader.view(0, 1).expect("made").expect("made");
        assert_eq!(view.part(5..20_000), Some(Seen::Away(address + 5)));
        assert_eq!(view.part(20_001..30_000), Some(Seen::Away(address + 30_001)));
        assert_eq!((view.part(7..7), view.part(19_999..20_001)), (Some(Seen::Here(&[])), None));
        assert!(reader.take_borrowed() && !settled(&mut giver) && settled(&mut reader) && settled(&mut giver));
        assert_eq!(giver.whole(0, 1), Err(BoardError::Corrupt { member: 0 }), "nobody fetches from itself");
        // What is short, or shorter through a slot, or in a heap, or not to be fetched.
        assert_eq!(giver.try_offer(&[0; HEAD], &[&given[..1000]], fetched), Ok(true));
        let buffer = heap.allocate(2 * 4096).expect("room");
        assert_eq!(giver.try_offer(&[0; HEAD], &[buffer.as_bytes()], fetched), Ok(true));
        giver.gauge.find(Reach::Middle);
        assert_eq!(giver.try_offer(&[0; HEAD], &[&given[..17_000]], fetched), Ok(true));
        for _ in 0..3 {
            assert_eq!(reader.offer(&[]), Ok(true));
        }
        for (phase, byte_len) in [(2, 1000), (3, 2 * 4096), (4, 17_000)] {
            let view = reader.view(0, phase).expect("made").expect("made");
            assert!(matches!(view.part(0..byte_len), Some(Seen::Here(_))), "offer {phase}");
        }
        for not in [(Lease::Fetch, false), (Lease::View, true), (Lease::None, true)] {
            assert!(matches!(giver.try_offer(&[0; HEAD], &[&given], not), Err(BoardError::TooLong { .. })), "{not:?}");
        }
    }

    #[test]
    fn what_stays_where_it_is_is_not_offered_beside_a_view() {
        let [(mut giver, heap), (mut peer, _)] = two_with_heaps();
        let (buffer, elsewhere) = (heap.allocate(2 * 4096).expect("room"), vec![1; 20_000]);
        for seat in [&mut giver, &mut peer] {
            assert_eq!(seat.try_offer(&[0; HEAD], &[], (Lease::None, false)), Ok(true));
        }
        for (part, lease) in [(buffer.as_bytes(), (Lease::View, false)), (&elsewhere, (Lease::Fetch, true))] {
            assert!(
                !giver.try_offer_beside(&[0; HEAD], part, lease, (1, 1, Order::Beside), &mut |_, _| true),
                "{lease:?}"
            );
            assert_eq!(giver.try_offer(&[0; HEAD], &[part], lease), Ok(true));
        }
        let (copied, lease) = (&elsewhere[..3000], (Lease::None, false));
        giver.gauge.find(Reach::Far);
        assert!(
            !giver.try_offer_beside(&[0; HEAD], copied, lease, (1, 1, Order::Beside), &mut |_, _| true),
            "past the caches"
        );
    }

    #[test]
    fn what_is_lent_is_read_and_written_where_it_is() {
        let [(mut first, heap), (mut second, other_heap)] = two_with_heaps();
        let mut rooms = [&heap, &other_heap].map(|heap| heap.allocate(2 * 4096).expect("room"));
        rooms[0].as_bytes_mut().fill(1);
        rooms[1].as_bytes_mut().fill(2);
        let [ours, theirs] = &mut rooms;
        assert_eq!(first.try_lend(&[7; HEAD], &mut ours.as_bytes_mut()[100..6000]), Ok(Loan::Made));
        assert_eq!(second.try_lend(&[7; HEAD], &mut theirs.as_bytes_mut()[..5900]), Ok(Loan::Made));
        let view = second.view(0, 1).expect("made").expect("made");
        assert_eq!((view.head(), view.part(0..5900)), ([7; HEAD].as_slice(), Some(Seen::Here(&[1; 5900]))));
        second.lent(0, 1, 50..5900).expect("lent").fill(9);
        for part in [0..5901, 5900..5901, usize::MAX - 1..usize::MAX, 5901..5901] {
            assert_eq!(second.lent(0, 1, part), Err(BoardError::Corrupt { member: 0 }));
        }
        assert!(!settled(&mut first), "the other may still write");
        assert!(settled(&mut second) && settled(&mut first));
        let expected = [vec![1; 150], vec![9; 5850], vec![1; 8192 - 6000]].concat();
        assert_eq!(ours.as_bytes(), expected);
        // Nothing is lent any more.
        first.take_back().expect("nothing");
        second.lent(0, 1, 0..1).expect("whoever breaks the rules").fill(3);
        assert_eq!(ours.as_bytes()[100], 3);
    }

    #[test]
    fn what_is_taken_back_is_written_by_nobody_else_and_shown_to_nobody() {
        let [(mut giver, heap), (mut taker, _)] = two_with_heaps();
        let mut room = heap.allocate(3 * 4096).expect("room");
        room.as_bytes_mut().fill(1);
        assert_eq!(giver.try_lend(&[7; HEAD], &mut room.as_bytes_mut()[4000..9000]), Ok(Loan::Made));
        assert_eq!(taker.offer(&[]), Ok(true));
        taker.lent(0, 1, 0..100).expect("lent").fill(2);
        giver.take_back().expect("memory");
        taker.lent(0, 1, 0..5000).expect("a late one").fill(3);
        let expected = [vec![1; 4000], vec![2; 100], vec![1; 3 * 4096 - 4100]].concat();
        assert_eq!(room.as_bytes(), expected);
        room.as_bytes_mut()[4000] = 4;
        let seen = taker.view(0, 1).expect("made").expect("made").part(0..1);
        assert_eq!(seen, Some(Seen::Here(&[3])), "what is written here stays here");
        // So it must not be shown as if the peers saw it.
        assert_eq!(giver.try_lend(&[7; HEAD], room.as_bytes_mut()), Ok(Loan::Refused));
        let long = giver.try_offer(&[0; HEAD], &[room.as_bytes()], (Lease::View, false));
        assert!(matches!(long, Err(BoardError::TooLong { .. })), "{long:?}");
    }

    #[test]
    fn whoever_leaves_before_it_is_done_with_what_was_lent_is_told_of() {
        for settles in [true, false] {
            let [(mut giver, heap), (mut taker, _)] = two_with_heaps();
            let mut room = heap.allocate(4096).expect("room");
            assert_eq!(giver.try_lend(&[7; HEAD], room.as_bytes_mut()), Ok(Loan::Made));
            assert_eq!(taker.try_lend(&[7; HEAD], &mut [1; 4096]), Ok(Loan::Refused), "not of its heap");
            if settles {
                assert!(settled(&mut taker));
            }
            drop(taker);
            assert_eq!(giver.readers(), if settles { vec![] } else { vec![1] });
            let end = if settles { Ok(true) } else { Err(BoardError::Closed { member: 1 }) };
            assert_eq!(giver.try_settle(), end);
        }
        // Unless nobody was to write it.
        let [(mut giver, heap), (taker, _)] = two_with_heaps();
        let mut room = heap.allocate(4096).expect("room");
        assert_eq!(giver.try_lend(&[7; HEAD], room.as_bytes_mut()), Ok(Loan::Made));
        drop(taker);
        giver.forgo();
        assert_eq!(giver.try_settle(), Ok(true));
    }

    #[test]
    fn a_heap_is_of_one_member_of_a_process() {
        let board = byte_len(2, 4096).expect("small").next_multiple_of(4096);
        let segment = Arc::new(Segment::create_sparse(board + 2 * 4096, board).expect("memfd"));
        let seat = |member| Seat::in_segment(Arc::clone(&segment), 0, member, 2, 4096).expect("free");
        let with_heaps = |seat: Seat| seat.with_heaps(&segment, [board, board + 4096], 4096);
        let first = with_heaps(seat(0)).expect("free");
        assert!(matches!(with_heaps(seat(1)), Err(PlaceError::Segment(SegmentError::InUse { .. }))));
        let heap = |member: usize| crate::Heap::in_segment(Arc::clone(&segment), board + member * 4096, 4096);
        assert!(heap(0).is_ok() && heap(1).is_err());
        drop(first);
        assert!(heap(1).is_ok());
    }

    #[test]
    fn hostile_references_are_errors() {
        let [(mut giver, heap), (mut reader, _)] = two_with_heaps();
        let buffer = heap.allocate(4096).expect("room");
        let nonsense = [[u64::MAX, 8], [4 * 4096 - 4, 8], [u64::MAX - 3, 8], [1, 7]];
        for [start, byte_len] in nonsense {
            let place = [start.to_le_bytes(), byte_len.to_le_bytes()].concat();
            assert_eq!(giver.publish(&[0; HEAD], &[&place], REFERS), Ok(true));
            assert_eq!(reader.offer(&[]), Ok(true));
            let view = reader.view(0, giver.phase()).expect("made").expect("made");
            assert_eq!(view.part(0..8), None, "{start} {byte_len}");
        }
        drop(buffer);
        let place = [u64::MAX - 3, 8].map(u64::to_le_bytes).concat();
        assert_eq!((giver.publish(&[0; HEAD], &[&place], AWAY), reader.offer(&[])), (Ok(true), Ok(true)));
        let view = reader.view(0, giver.phase()).expect("made").expect("made");
        assert_eq!((view.part(4..8), view.part(0..9)), (None, None));
        assert_eq!((giver.publish(&[0; HEAD], &[], REFERS | AWAY), reader.offer(&[])), (Ok(true), Ok(true)));
        assert_eq!(reader.whole(0, giver.phase()), Err(BoardError::Corrupt { member: 0 }), "two kinds at once");
        // No heaps, no references.
        let (ours, theirs) = two_mappings(2, 8);
        let seat = |segment, member| Seat::in_segment(segment, OFFSET, member, 2, 8).expect("free");
        let (mut giver, mut reader) = (seat(ours, 0), seat(theirs, 1));
        assert_eq!((giver.publish(&[], &[], REFERS), reader.offer(&[])), (Ok(true), Ok(true)));
        assert_eq!(reader.whole(0, 1), Err(BoardError::Corrupt { member: 0 }));
    }

    /// A seat, and the words of its board as another process has them, which may write anything.
    fn seat_and_raw() -> (Seat, Cells<AtomicU64>, Shape) {
        let (ours, theirs) = two_mappings(2, 8);
        let seat = Seat::in_segment(ours, OFFSET, 0, 2, 8).expect("free");
        let count = byte_len(2, 8).expect("small") / WORD;
        (seat, Cells::in_segment(theirs, OFFSET, count).expect("free"), Shape::new(2, 8.into()).expect("small"))
    }

    fn two_mappings(members: usize, slot_byte_len: usize) -> (Arc<Segment>, Arc<Segment>) {
        let ours = Segment::create(OFFSET + byte_len(members, slot_byte_len).expect("small")).expect("memfd");
        let fd = ours.fd().try_clone_to_owned().expect("a free descriptor");
        (Arc::new(ours), Arc::new(Segment::open(fd).expect("sealed")))
    }
}
