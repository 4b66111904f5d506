//! All interleavings of two threads on a tiny ring: order, wrap-around, closing. Races on bytes fail the model.

use loom::thread;

use super::*;

#[test]
fn bytes_arrive_in_order_around_the_end_and_then_the_ring_is_closed() {
    // Without a bound the model takes minutes; two preemptions find all but the most contrived mistakes.
    bounded(2, || {
        let (mut producer, mut consumer) = pair(2).expect("two bytes");
        assert_eq!(producer.try_write(&[1]), Ok(1));
        // These two wrap around the end, once the first is read.
        let writer = thread::spawn(move || write_all(&mut producer, &[2, 3]));
        let mut expected = 1;
        let closed = loop {
            let mut bytes = [0; 2];
            match consumer.try_read(&mut bytes) {
                Ok(0) => thread::yield_now(),
                Ok(read) => bytes[..read].iter().for_each(|&byte| {
                    assert_eq!(byte, expected);
                    expected += 1;
                }),
                Err(error) => break error,
            }
        };
        assert_eq!((closed, expected), (RingError::Closed, 4));
        writer.join().expect("no panic");
    });
}

#[test]
fn a_lent_byte_stays_until_it_is_released() {
    loom::model(|| {
        let (mut producer, mut consumer) = pair(1).expect("one byte");
        let writer = thread::spawn(move || write_all(&mut producer, &[1, 2]));
        for expected in [1, 2] {
            while consumer.peek(1).expect("open").is_empty() {
                thread::yield_now();
            }
            // The second look is a read at the end of the loan, as far as the checker knows.
            assert_eq!(consumer.peek(1), Ok(&[expected][..]));
            consumer.advance(1).expect("seen");
        }
        writer.join().expect("no panic");
        assert!(consumer.is_closed());
    });
}

#[test]
fn a_producer_learns_that_its_consumer_is_gone() {
    loom::model(|| {
        let (mut producer, consumer) = pair(1).expect("one byte");
        let reader = thread::spawn(move || drop(consumer));
        let outcome = loop {
            match producer.try_write(&[1]) {
                Ok(_) => thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert_eq!(outcome, RingError::Closed);
        reader.join().expect("no panic");
    });
}

fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn write_all(producer: &mut Producer, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match producer.try_write(bytes).expect("the consumer stays") {
            0 => thread::yield_now(),
            written => bytes = &bytes[written..],
        }
    }
}
