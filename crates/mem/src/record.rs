//! A sequence lock: a few words that one writes and others read whole. Neither ever waits for the other.
//!
//! The first cell is a version, odd while the writer is at it; the others are the value. A reader takes the value between
//! two looks at the version and believes it when both are the same and even. The writer's release fence keeps the value's
//! stores behind the odd version, the reader's acquire fence keeps the value's loads before the second look.
//!
//! A writer that dies half way leaves the version odd for ever: a reader gives up after a bounded number of tries.

use crate::sync::{AtomicU64, Ordering, fence};

/// The number of cells that a record of `words` words takes.
pub const fn cells(words: usize) -> usize {
    words + 1
}

/// Writes `value` over what was there. A record has one writer at a time.
///
/// # Panics
///
/// Unless there are [`cells`]`(N)` cells.
pub fn write<const N: usize>(record: &[AtomicU64], value: [u64; N]) {
    let (version, words) = parts::<N>(record);
    let odd = version.load(Ordering::Relaxed) | 1;
    version.store(odd, Ordering::Relaxed);
    fence(Ordering::Release);
    for (word, value) in words.iter().zip(value) {
        word.store(value, Ordering::Relaxed);
    }
    version.store(odd.wrapping_add(1), Ordering::Release);
}

/// The value as some write left it, or zeros before the first; none when no try saw it whole.
///
/// # Panics
///
/// Unless there are [`cells`]`(N)` cells.
pub fn read<const N: usize>(record: &[AtomicU64]) -> Option<[u64; N]> {
    let (version, words) = parts::<N>(record);
    (0..TRIES).find_map(|_| {
        let before = version.load(Ordering::Acquire);
        let value = std::array::from_fn(|at| words[at].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        (before.is_multiple_of(2) && version.load(Ordering::Relaxed) == before).then_some(value)
    })
}

fn parts<const N: usize>(record: &[AtomicU64]) -> (&AtomicU64, &[AtomicU64]) {
    assert_eq!(record.len(), cells(N), "a record of {N} words");
    (&record[0], &record[1..])
}

/// A write takes a few nanoseconds: a reader that meets one this often meets a writer that does not go on.
const TRIES: usize = if cfg!(loom) { 2 } else { 1000 };

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn record() -> [AtomicU64; 5] {
        std::array::from_fn(|_| AtomicU64::new(0))
    }

    #[test]
    fn what_is_read_was_written_whole() {
        let record = record();
        assert_eq!(read(&record), Some([0; 4]));
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=100_000).for_each(|value| write(&record, [value; 4])));
            let mut last = 0;
            while last < 100_000 {
                if let Some(value) = read::<4>(&record) {
                    assert!(value[0] >= last && value == [value[0]; 4], "{value:?} after {last}");
                    last = value[0];
                }
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn a_writer_that_died_half_way_is_given_up_and_its_successor_repairs() {
        let record = record();
        write(&record, [1; 4]);
        record[0].store(3, Ordering::Relaxed);
        record[1].store(2, Ordering::Relaxed);
        assert_eq!(read::<4>(&record), None);
        write(&record, [5; 4]);
        assert_eq!(read(&record), Some([5; 4]));
    }
}

#[cfg(all(test, loom))]
mod loom_model {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    #[test]
    fn a_value_is_never_seen_in_parts() {
        // Without a bound the model takes hours: the fences leave each load many values to choose from.
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let record: Arc<[AtomicU64; 3]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
            let theirs = Arc::clone(&record);
            let writer = thread::spawn(move || [1, 2].into_iter().for_each(|value| write(&*theirs, [value; 2])));
            if let Some(value) = read::<2>(&*record) {
                assert_eq!(value[0], value[1]);
            }
            writer.join().expect("no panic");
            assert_eq!(read(&*record), Some([2; 2]));
        });
    }
}
