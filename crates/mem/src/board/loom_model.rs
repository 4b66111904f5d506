//! Interleavings of two threads at a board: reuse of slots, and leaving. Races on bytes fail the model.

use loom::thread;

use super::*;

#[test]
fn a_view_never_sees_a_later_offer() {
    never_sees_a_later_offer(false, 1);
}

#[test]
fn a_view_never_sees_a_later_offer_in_turn() {
    // A room holds one offer more than there are slots.
    never_sees_a_later_offer(true, 2);
}

fn never_sees_a_later_offer(are_in_turn: bool, over: u8) {
    bounded(move || {
        let (mut writer, mut reader) = two_seats_of(Slots { byte_len: 1, are_in_turn });
        // The last offer overwrites the first, once the reader is past viewing it.
        let offers = thread::spawn(move || (1..=SLOTS as u8 + over).for_each(|value| offer(&mut writer, &[value])));
        for phase in 1..=LOOKBACK as u8 + over {
            offer(&mut reader, &[]);
            let oldest = phase.saturating_sub(LOOKBACK as u8 - 1).max(1);
            wait_for(&reader, phase);
            // Looking at them once more is, to the checker, a read at the end of the views.
            (oldest..=phase).for_each(|viewed| wait_for(&reader, viewed));
        }
        offers.join().expect("no panic");
    });
}

#[test]
fn what_was_offered_before_leaving_is_seen_and_nothing_after_is_waited_for() {
    bounded(|| {
        let (mut leaver, mut reader) = two_seats();
        let offers = thread::spawn(move || offer(&mut leaver, &[1]));
        offer(&mut reader, &[]);
        wait_for(&reader, 1);
        offer(&mut reader, &[]);
        let outcome = loop {
            match reader.whole(0, 2) {
                Ok(view) => assert_eq!(view, None),
                Err(error) => break error,
            }
            thread::yield_now();
        };
        assert_eq!(outcome, BoardError::Closed { member: 0 });
        offers.join().expect("no panic");
    });
}

#[test]
fn an_offer_does_not_wait_for_a_seat_that_was_left() {
    bounded(|| {
        let (mut writer, leaver) = two_seats();
        let leaving = thread::spawn(move || drop(leaver));
        (1..=RUN_AHEAD as u8).for_each(|value| offer(&mut writer, &[value]));
        let outcome = loop {
            match writer.offer(&[0]) {
                Ok(offered) => assert!(!offered),
                Err(error) => break error,
            }
            thread::yield_now();
        };
        assert_eq!(outcome, BoardError::Closed { member: 1 });
        leaving.join().expect("no panic");
    });
}

fn two_seats() -> (Seat, Seat) {
    two_seats_of(1.into())
}

fn two_seats_of(slots: Slots) -> (Seat, Seat) {
    let mut seats = seats(2, slots).expect("memory").into_iter();
    (seats.next().expect("two"), seats.next().expect("two"))
}

fn offer(seat: &mut Seat, bytes: &[u8]) {
    while !seat.offer(bytes).expect("nobody is waited for who left") {
        thread::yield_now();
    }
}

fn wait_for(seat: &Seat, phase: u8) {
    loop {
        match seat.whole(0, u64::from(phase)).expect("offered before leaving") {
            Some(view) => return assert_eq!(view, [phase]),
            None => thread::yield_now(),
        }
    }
}

/// Without a bound the models take minutes; two preemptions find all but the most contrived mistakes.
fn bounded(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}
