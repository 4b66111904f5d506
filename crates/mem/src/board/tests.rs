//! The board as one process sees it, and what a hostile peer may write into a shared one.

use std::thread;

use super::*;
use crate::LINE;

#[test]
fn offers_are_seen_by_all_at_their_phase() {
    let mut seats = seats(3, 8).expect("memory");
    for (member, seat) in seats.iter_mut().enumerate() {
        assert_eq!((seat.member(), seat.members(), seat.slot_byte_len(), seat.phase()), (member, 3, 8, 0));
        assert_eq!(seat.try_offer(&vec![member as u8; member]), Ok(true));
    }
    for seat in &seats {
        for member in 0..3 {
            assert_eq!(seat.view(member, 1), Ok(Some(&vec![member as u8; member][..])));
        }
    }
}

#[test]
fn views_are_of_the_latest_phases_only() {
    let mut seats = seats(2, 1).expect("memory");
    assert_eq!(seats[0].view(1, 0), Err(BoardError::OutOfTurn { phase: 0, own: 0 }));
    assert_eq!(seats[0].view(1, 1), Err(BoardError::OutOfTurn { phase: 1, own: 0 }));
    assert_eq!(seats[0].view(1, u64::MAX), Err(BoardError::OutOfTurn { phase: u64::MAX, own: 0 }));
    assert_eq!(seats[0].try_offer(&[1]), Ok(true));
    assert_eq!(seats[0].view(1, 1), Ok(None));
    assert_eq!(seats[0].try_offer(&[2]), Ok(true));
    assert_eq!(seats[1].try_offer(&[3]), Ok(true));
    assert_eq!(seats[0].view(1, 1), Ok(Some(&[3][..])));
    assert_eq!(seats[0].try_offer(&[4]), Ok(true));
    assert_eq!(seats[0].view(1, 1), Err(BoardError::OutOfTurn { phase: 1, own: 3 }));
    assert_eq!(seats[0].view(0, 2), Ok(Some(&[2][..])));
}

#[test]
fn a_member_runs_ahead_by_the_spare_slots_only() {
    let mut seats = seats(2, 1).expect("memory");
    for behind in 0..10 {
        while seats[0].try_offer(&[0]).expect("nobody left") {}
        assert_eq!(seats[0].phase(), behind + RUN_AHEAD);
        assert_eq!(seats[1].try_offer(&[0]), Ok(true));
    }
}

#[test]
fn bad_calls_are_refused() {
    let mut seats = seats(2, 3).expect("memory");
    assert_eq!(seats[0].try_offer(&[0; 4]), Err(BoardError::TooLong { byte_len: 4, slot_byte_len: 3 }));
    assert_eq!(seats[0].try_offer(&[]), Ok(true));
    assert_eq!(seats[0].view(2, 1), Err(BoardError::NoSuchMember { member: 2, members: 2 }));
    assert!(matches!(super::seats(0, 1), Err(PlaceError::NoSuchMember { .. })));
    assert!(matches!(super::seats(2, usize::MAX), Err(PlaceError::TooLong)));
    assert!(matches!(super::seats(1 << 40, 1 << 40), Err(PlaceError::TooLong)));
    assert!(matches!(super::seats(1, isize::MAX as usize / 4), Err(PlaceError::OutOfMemory(_))));
    assert_eq!(byte_len(0, 1), None);
    assert_eq!(byte_len(2, 0), Some(2 * (1 + SLOTS) * LINE));
}

#[test]
fn a_seat_that_was_left_is_not_waited_for() {
    let mut seats = seats(2, 1).expect("memory");
    let mut leaver = seats.pop().expect("two");
    assert_eq!(leaver.try_offer(&[5]), Ok(true));
    leaver.leave();
    assert_eq!(leaver.try_offer(&[6]), Err(BoardError::Closed { member: 1 }));
    drop(leaver);
    let seat = &mut seats[0];
    for _ in 0..3 {
        assert_eq!(seat.try_offer(&[0]), Ok(true));
        if seat.phase() <= 2 {
            assert_eq!(seat.view(1, 1), Ok(Some(&[5][..])));
        }
    }
    assert_eq!(seat.view(1, 2), Err(BoardError::Closed { member: 1 }));
    assert_eq!(seat.try_offer(&[0]), Err(BoardError::Closed { member: 1 }));
}

#[test]
fn threads_see_exactly_what_was_offered() {
    for (members, slot_byte_len, phases) in [(1, 10, 100), (2, 100, 3000), (4, 1000, 500)] {
        play(seats(members, slot_byte_len).expect("memory"), phases);
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
        while !seat.try_offer(&bytes).expect("nobody left early") {
            thread::yield_now();
        }
        let oldest = if phase % 3 == 0 { phase - 1 } else { phase };
        for (member, viewed) in
            (0..seat.members()).flat_map(|member| (oldest..=phase).map(move |viewed| (member, viewed)))
        {
            let expected = bytes_of(member, viewed, seat.slot_byte_len());
            let view = loop {
                match seat.view(member, viewed).expect("nobody left early") {
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

#[cfg(target_os = "linux")]
mod in_segment {
    use std::sync::Arc;

    use super::*;
    use crate::SegmentError;

    const OFFSET: usize = LINE;

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
        let (mut seat, theirs, shape) = seat_and_raw();
        let number = |phase| theirs.atomic_u64(OFFSET + shape.number(1, phase)).expect("they may write anything");
        assert_eq!(seat.try_offer(&[1]), Ok(true));
        for nonsense in [1 + RUN_AHEAD + 1, u64::MAX, 1 << 63] {
            number(1).store(nonsense, Ordering::Release);
            assert_eq!(seat.view(1, 1), Err(BoardError::Corrupt { member: 1 }));
        }
        number(1).store(1, Ordering::Release);
        while seat.try_offer(&[1]).expect("a possible number") {}
        assert_eq!(seat.phase(), 3);
        assert_eq!(seat.view(1, 3), Ok(None));
        number(2).store(u64::MAX, Ordering::Release);
        assert_eq!(seat.try_offer(&[1]), Err(BoardError::Corrupt { member: 1 }));
        number(3).store(u64::MAX, Ordering::Release);
        assert_eq!(seat.view(1, 3), Err(BoardError::Corrupt { member: 1 }));
    }

    #[test]
    fn hostile_lengths_are_errors() {
        let (mut seat, theirs, shape) = seat_and_raw();
        assert_eq!(seat.try_offer(&[1]), Ok(true));
        theirs.atomic_u64(OFFSET + shape.number(1, 1)).expect("raw").store(1, Ordering::Release);
        let length = theirs.atomic_u64(OFFSET + shape.length(1, 1)).expect("raw");
        for nonsense in [9, u64::MAX, 1 << 63] {
            length.store(nonsense, Ordering::Release);
            assert_eq!(seat.view(1, 1), Err(BoardError::Corrupt { member: 1 }));
        }
        length.store(8, Ordering::Release);
        assert_eq!(seat.view(1, 1), Ok(Some(&[0; 8][..])));
        // Our own words are checked like anybody's.
        theirs.atomic_u64(OFFSET + shape.length(0, 1)).expect("raw").store(99, Ordering::Release);
        assert_eq!(seat.view(0, 1), Err(BoardError::Corrupt { member: 0 }));
    }

    fn seat_and_raw() -> (Seat, Arc<Segment>, Shape) {
        let (ours, theirs) = two_mappings(2, 8);
        let seat = Seat::in_segment(ours, OFFSET, 0, 2, 8).expect("free");
        (seat, theirs, Shape::new(2, 8).expect("small"))
    }

    fn two_mappings(members: usize, slot_byte_len: usize) -> (Arc<Segment>, Arc<Segment>) {
        let ours = Segment::create(OFFSET + byte_len(members, slot_byte_len).expect("small")).expect("memfd");
        let fd = ours.fd().try_clone_to_owned().expect("a free descriptor");
        (Arc::new(ours), Arc::new(Segment::open(fd).expect("sealed")))
    }
}
