//! Rings between two threads, and what a hostile peer may write into a shared one.

use std::thread;

use super::*;
use crate::gauge::Reach;

#[test]
fn partial_writes_and_reads_wrap_around() {
    let (mut producer, mut consumer) = pair(8).expect("memory");
    let mut bytes = [0; 8];
    assert_eq!(consumer.try_read(&mut bytes), Ok(0));
    assert_eq!(producer.try_write(b"abcdef"), Ok(6));
    assert_eq!(consumer.try_read(&mut bytes[..4]), Ok(4));
    assert_eq!(producer.try_write(b"ghijklmn"), Ok(6));
    assert_eq!(producer.try_write(b"m"), Ok(0));
    assert_eq!(producer.try_write(b""), Ok(0));
    // Only what was seen at the last look is lent.
    assert_eq!(consumer.peek(1), Ok(&b"ef"[..]));
    assert_eq!(consumer.try_read(&mut bytes), Ok(8));
    assert_eq!(&bytes, b"efghijkl");
}

#[test]
fn two_parts_go_as_far_as_there_is_room() {
    let (mut producer, mut consumer) = pair(8).expect("memory");
    let mut bytes = [0; 8];
    assert_eq!(producer.try_write_parts([b"abc", b"de"]), Ok(5));
    assert_eq!(producer.try_write_parts([b"f", b"ghij"]), Ok(3));
    assert_eq!(producer.try_write_parts([b"ij", b""]), Ok(0));
    assert_eq!((consumer.try_read(&mut bytes[..6]), &bytes[..6]), (Ok(6), &b"abcdef"[..]));
    assert_eq!(producer.try_write_parts([b"ijklmnop", b"q"]), Ok(6));
    assert_eq!((consumer.try_read(&mut bytes), &bytes), (Ok(8), b"ghijklmn"));
}

#[test]
fn a_body_begins_at_a_line_behind_its_head() {
    let (mut producer, mut consumer) = pair(4 * LINE).expect("memory");
    let (body, mut came) = ([9; 2 * LINE], [0; 4 * LINE]);
    assert_eq!(producer.try_write_led(b"head", &body), Ok(4 + 2 * LINE));
    assert_eq!((consumer.try_read(&mut came[..4]), &came[..4]), (Ok(4), &b"head"[..]));
    assert_eq!([(); 2].map(|()| consumer.try_skip_to_line()), [Ok(true); 2], "once and for all");
    assert_eq!((consumer.try_read(&mut came), &came[..2 * LINE]), (Ok(2 * LINE), &body[..]));
    assert_eq!(consumer.try_skip_to_line(), Ok(false), "nothing is there");
    assert_eq!(producer.try_write(b"x"), Ok(1));
    assert_eq!(consumer.gap_behind(4), LINE - 4);
    assert_eq!((consumer.try_read(&mut came), consumer.gap_behind(4)), (Ok(1), LINE - 5));
    // The head goes only with some of the body.
    assert_eq!(producer.try_write(&[1; 3 * LINE]), Ok(3 * LINE));
    assert_eq!(producer.try_write_led(&[2; LINE], &body), Ok(0));
    assert_eq!(producer.try_write_led(b"head", &body), Ok(4 + 1));
    assert_eq!(consumer.try_read(&mut came[..3 * LINE]), Ok(3 * LINE));
    drop(producer);
    assert_eq!((consumer.try_read(&mut came[..4]), &came[..4]), (Ok(4), &b"head"[..]));
    assert_eq!(consumer.try_skip_to_line(), Ok(true));
    assert_eq!(consumer.try_read(&mut came), Ok(1));
    assert_eq!(consumer.try_skip_to_line(), Err(RingError::Closed));
}

#[test]
fn a_producer_that_ends_before_a_body_begins_has_ended() {
    let (mut producer, mut consumer) = pair(4 * LINE).expect("memory");
    producer.try_write(b"head and").expect("room");
    assert_eq!(consumer.try_read(&mut [0; 4]), Ok(4));
    assert_eq!(consumer.try_skip_to_line(), Ok(false));
    drop(producer);
    assert_eq!(consumer.try_skip_to_line(), Err(RingError::Closed));
}

#[test]
fn heads_and_bodies_of_any_length_pass_led_or_not() {
    const ROUNDS: usize = 4_000;
    let lengths = |random: &mut fastrand::Rng| (random.bool(), random.usize(1..40), random.usize(1..2_000));
    for seed in 0..4 {
        let (mut producer, mut consumer) = pair(8 * LINE).expect("memory");
        thread::scope(|scope| {
            scope.spawn(move || {
                let (mut random, mut sent) = (fastrand::Rng::with_seed(seed), 0);
                for _ in 0..ROUNDS {
                    let (is_led, head_len, body_len) = lengths(&mut random);
                    let frame: Vec<u8> = (sent..sent + head_len + body_len).map(byte_at).collect();
                    let mut gone = 0;
                    while gone < frame.len() {
                        let now = match frame[gone..].split_at(head_len.saturating_sub(gone)) {
                            (head, body) if is_led && !head.is_empty() => producer.try_write_led(head, body),
                            (head, body) => producer.try_write_parts([head, body]),
                        };
                        match now.expect("the consumer stays") {
                            0 => thread::yield_now(),
                            some => gone += some,
                        }
                    }
                    sent += frame.len();
                }
            });
            let (mut random, mut read) = (fastrand::Rng::with_seed(seed), 0);
            for _ in 0..ROUNDS {
                let (is_led, head_len, body_len) = lengths(&mut random);
                let mut frame = vec![0; head_len + body_len];
                let mut came = 0;
                while came < frame.len() {
                    let end = if came < head_len { head_len } else { frame.len() };
                    let is_there = came != head_len || !is_led || consumer.try_skip_to_line().expect("open");
                    match if is_there { consumer.try_read(&mut frame[came..end]).expect("open") } else { 0 } {
                        0 => thread::yield_now(),
                        some => came += some,
                    }
                }
                assert!(frame.iter().enumerate().all(|(at, &byte)| byte == byte_at(read + at)), "behind {read}");
                read += frame.len();
            }
        });
    }
}

#[test]
fn whatever_the_distance_bytes_arrive_in_order() {
    const TOTAL: usize = 4 << 20;
    let byte = |at: usize| (at % 251) as u8;
    let (mut producer, mut consumer) = pair(MEASURED).expect("memory");
    let writer = thread::spawn(move || {
        let (bytes, mut rng): (Vec<u8>, _) = ((0..TOTAL).map(byte).collect(), fastrand::Rng::with_seed(3));
        let mut sent = 0;
        while sent < TOTAL {
            let reach = rng.choice([Reach::Near, Reach::Far]).expect("two");
            producer.gauge.as_mut().expect("measured").find(reach);
            let (first, second) = bytes[sent..].split_at(rng.usize(..20_000).min(TOTAL - sent));
            let second = &second[..rng.usize(..5_000).min(second.len())];
            match producer.try_write_parts([first, second]).expect("open") {
                0 => thread::yield_now(),
                some => sent += some,
            }
        }
        // What is asked to the end is answered to the end.
        producer
    });
    let (mut bytes, mut came) = (vec![0; 30_000], 0);
    while came < TOTAL {
        let now = consumer.try_read(&mut bytes).expect("open");
        assert!(bytes[..now].iter().enumerate().all(|(at, value)| *value == byte(came + at)), "behind {came}");
        came += now;
    }
    drop(writer.join().expect("no panic"));
}

#[test]
fn advance_releases_only_what_was_seen() {
    let (mut producer, mut consumer) = pair(4).expect("memory");
    producer.try_write(b"abc").expect("room");
    assert_eq!(consumer.advance(1), Err(RingError::PastEnd { byte_len: 1, readable: 0 }));
    assert_eq!(consumer.peek(1), Ok(&b"abc"[..]));
    assert_eq!(consumer.advance(4), Err(RingError::PastEnd { byte_len: 4, readable: 3 }));
    assert_eq!(consumer.advance(2), Ok(()));
    assert_eq!(consumer.peek(1), Ok(&b"c"[..]));
}

#[test]
fn the_consumer_drains_before_it_learns_of_the_end() {
    let (mut producer, mut consumer) = pair(4).expect("memory");
    producer.try_write(b"ab").expect("room");
    producer.close();
    assert_eq!(producer.try_write(b"c"), Err(RingError::Closed));
    assert!(!consumer.is_closed());
    let mut bytes = [0; 4];
    assert_eq!(consumer.try_read(&mut bytes), Ok(2));
    assert!(consumer.is_closed());
    assert_eq!(consumer.try_read(&mut bytes), Err(RingError::Closed));
    assert_eq!(consumer.peek(1), Err(RingError::Closed));
}

#[test]
fn the_producer_learns_that_the_consumer_is_gone() {
    let (mut producer, consumer) = pair(4).expect("memory");
    assert!(!producer.is_closed());
    drop(consumer);
    assert!(producer.is_closed());
    assert_eq!(producer.try_write(b"a"), Err(RingError::Closed));
}

#[test]
fn bad_capacities_are_refused() {
    for capacity in [0, 3, 100] {
        assert!(matches!(pair(capacity), Err(PlaceError::NotPowerOfTwo { .. })));
        assert_eq!(byte_len(capacity), None);
    }
    assert!(matches!(pair(1 << (usize::BITS - 1)), Err(PlaceError::OutOfMemory(_))));
    assert_eq!(byte_len(1), Some(4 * LINE));
}

#[test]
fn megabytes_of_odd_sizes_pass_between_threads() {
    for (capacity, total, seed) in [(1, 20_000, 1), (64, 300_000, 2), (4096, 4_000_000, 3), (1 << 16, 8_000_000, 4)] {
        let (producer, consumer) = pair(capacity).expect("memory");
        pass(producer, consumer, total, seed);
    }
}

fn pass(mut producer: Producer, mut consumer: Consumer, total: usize, seed: u64) {
    thread::scope(|scope| {
        scope.spawn(move || send(&mut producer, total, seed));
        scope.spawn(move || receive(&mut consumer, total, seed));
    });
}

fn send(producer: &mut Producer, total: usize, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut sent = 0;
    while sent < total {
        let byte_len = random.usize(1..=2 * producer.capacity()).min(total - sent);
        let chunk: Vec<u8> = (sent..sent + byte_len).map(byte_at).collect();
        match producer.try_write(&chunk).expect("the consumer stays") {
            0 => thread::yield_now(),
            written => sent += written,
        }
    }
}

fn receive(consumer: &mut Consumer, total: usize, seed: u64) {
    let mut random = fastrand::Rng::with_seed(!seed);
    let mut received = 0;
    let mut check = |bytes: &[u8]| {
        assert!(bytes.iter().enumerate().all(|(index, &byte)| byte == byte_at(received + index)));
        received += bytes.len();
        if bytes.is_empty() {
            thread::yield_now();
        }
    };
    let mut chunk = vec![0; 2 * consumer.capacity()];
    // Until the producer is gone, which may be between any two looks.
    loop {
        if random.bool() {
            let wanted = &mut chunk[..random.usize(1..=2 * consumer.capacity())];
            let read = if random.bool() { consumer.try_read(wanted) } else { consumer.try_read_past_caches(wanted) };
            let Ok(read) = read else { break };
            check(&chunk[..read]);
        } else {
            let Ok(lent) = consumer.peek(1) else { break };
            let taken = random.usize(0..=lent.len());
            check(&lent[..taken]);
            consumer.advance(taken).expect("lent");
        }
    }
    assert!(consumer.is_closed());
    assert_eq!(received, total);
}

/// A byte that depends on all of its position, so that no displaced byte passes.
fn byte_at(position: usize) -> u8 {
    ((position as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

mod in_segment {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::{Cells, SegmentError};

    const OFFSET: usize = 2 * LINE;

    #[test]
    fn bytes_pass_between_two_mappings() {
        let (ours, theirs) = two_mappings(1 << 12);
        let producer = producer_in(ours, OFFSET, 1 << 12).expect("free");
        let consumer = consumer_in(theirs, OFFSET, 1 << 12).expect("free");
        pass(producer, consumer, 1_000_000, 5);
    }

    #[test]
    fn bytes_pass_between_two_handles_of_one_mapping() {
        let (ours, _) = two_mappings(64);
        let producer = producer_in(Arc::clone(&ours), OFFSET, 64).expect("free");
        let consumer = consumer_in(ours, OFFSET, 64).expect("free");
        pass(producer, consumer, 100_000, 6);
    }

    #[test]
    fn each_side_is_taken_once() {
        let (ours, theirs) = two_mappings(64);
        let producer = producer_in(Arc::clone(&ours), OFFSET, 64).expect("free");
        let taken = producer_in(Arc::clone(&ours), OFFSET, 64).err().expect("taken");
        assert!(matches!(taken, PlaceError::Segment(SegmentError::InUse { .. })));
        assert!(matches!(ours.copy_in(OFFSET, &[0]), Err(SegmentError::InUse { .. })));
        drop(producer);
        assert!(matches!(producer_in(ours, OFFSET, 64), Err(PlaceError::Used)));
        assert!(matches!(producer_in(theirs, OFFSET, 64), Err(PlaceError::Used)));
    }

    #[test]
    fn bad_places_are_refused() {
        let (ours, _) = two_mappings(64);
        let misaligned = consumer_in(Arc::clone(&ours), 8, 64);
        assert!(matches!(misaligned, Err(PlaceError::Segment(SegmentError::Misaligned { .. }))));
        let outside = consumer_in(Arc::clone(&ours), OFFSET + LINE, 64);
        assert!(matches!(outside, Err(PlaceError::Segment(SegmentError::OutOfRange { .. }))));
        assert!(matches!(consumer_in(ours, usize::MAX - LINE + 1, 64), Err(PlaceError::TooLong)));
    }

    #[test]
    fn a_hostile_tail_is_an_error_for_the_consumer() {
        let (ours, theirs) = two_mappings(64);
        let mut consumer = consumer_in(ours, OFFSET, 64).expect("free");
        let word = word(theirs, TAIL);
        let tail = &word[0];
        tail.store(10, Ordering::Release);
        consumer.try_read(&mut [0; 5]).expect("five bytes of zero");
        for index in [0, 4, 9, 70, u64::MAX, 1 << 63] {
            tail.store(index, Ordering::Release);
            assert_eq!(consumer.try_read(&mut [0; 64]), Err(RingError::Corrupt { index }));
        }
        assert_eq!(consumer.peek(1).expect("five bytes known before"), [0; 5]);
        consumer.advance(5).expect("seen");
        assert_eq!(consumer.peek(1), Err(RingError::Corrupt { index: 1 << 63 }));
        assert!(consumer.is_closed());
    }

    #[test]
    fn a_hostile_head_is_an_error_for_the_producer() {
        let (ours, theirs) = two_mappings(64);
        let mut producer = producer_in(ours, OFFSET, 64).expect("free");
        let word = word(theirs, HEAD);
        let head = &word[0];
        assert_eq!(producer.try_write(&[1; 64]), Ok(64));
        head.store(10, Ordering::Release);
        assert_eq!(producer.try_write(&[1; 5]), Ok(5));
        for index in [0, 9, 70, u64::MAX, 1 << 63] {
            head.store(index, Ordering::Release);
            assert_eq!(producer.try_write(&[1; 64]), Err(RingError::Corrupt { index }));
        }
        head.store(69, Ordering::Release);
        assert_eq!(producer.try_write(&[1; 99]), Ok(64));
    }

    /// A word of the ring as the other process has it, which may write anything.
    fn word(theirs: Arc<Segment>, at: usize) -> Cells<AtomicU64> {
        Cells::in_segment(theirs, OFFSET + at, 1).expect("free")
    }

    fn two_mappings(capacity: usize) -> (Arc<Segment>, Arc<Segment>) {
        let ours = Segment::create(OFFSET + byte_len(capacity).expect("a power of two")).expect("memfd");
        let fd = ours.fd().try_clone_to_owned().expect("a free descriptor");
        (Arc::new(ours), Arc::new(Segment::open(fd).expect("sealed")))
    }
}
