//! The first of several writers wins, and what it says stays. Nobody waits: there is no moment at which something is said
//! and cannot be read yet, so a writer that dies leaves nothing behind that others would wait for.
//!
//! Each writer writes into cells of its own and then tries to put its number into the one winner cell, with release. Who
//! reads the winner's number with acquire finds its cells written.

use crate::sync::{AtomicU64, Ordering};

/// Says `words` as `writer`; false when another was first, and nobody will read this then.
///
/// The cells must be the writer's own, and are written once: a writer that has won does not say anything more.
pub fn say(winner: &AtomicU64, own: &[AtomicU64], writer: usize, words: &[u64]) -> bool {
    for (cell, word) in own.iter().zip(words) {
        cell.store(*word, Ordering::Relaxed);
    }
    let number = writer as u64 + 1;
    winner.compare_exchange(NOBODY, number, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// Whether anybody has said anything.
#[inline]
pub fn is_said(winner: &AtomicU64) -> bool {
    winner.load(Ordering::Acquire) != NOBODY
}

/// Who was first, if anybody was: as far as is known, for the number may be another process's input.
pub fn speaker(winner: &AtomicU64) -> Option<usize> {
    let number = winner.load(Ordering::Acquire).checked_sub(1)?;
    Some(usize::try_from(number).unwrap_or(usize::MAX))
}

const NOBODY: u64 = 0;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_stays() {
        let winner = AtomicU64::new(0);
        let slots: [[AtomicU64; 2]; 2] = std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)));
        assert_eq!((is_said(&winner), speaker(&winner)), (false, None));
        assert!(say(&winner, &slots[1], 1, &[8, 9]));
        assert!(!say(&winner, &slots[0], 0, &[7]));
        assert_eq!((is_said(&winner), speaker(&winner)), (true, Some(1)));
        assert_eq!(slots[1].each_ref().map(|cell| cell.load(Ordering::Relaxed)), [8, 9]);
        winner.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(speaker(&winner), Some(usize::MAX - 1));
    }
}

#[cfg(all(test, loom))]
mod loom_model {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    #[test]
    fn one_wins_and_is_read_whole() {
        loom::model(|| {
            let winner = Arc::new(AtomicU64::new(0));
            let slots: Arc<[[AtomicU64; 2]; 2]> =
                Arc::new(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))));
            let (their_winner, their_slots) = (Arc::clone(&winner), Arc::clone(&slots));
            let other = thread::spawn(move || say(&their_winner, &their_slots[0], 0, &[1, 1]));
            if let Some(speaker) = speaker(&winner) {
                assert_eq!(speaker, 0);
                slots[0].iter().for_each(|cell| assert_eq!(cell.load(Ordering::Relaxed), 1));
            }
            let won = say(&winner, &slots[1], 1, &[2, 2]);
            let first = speaker(&winner).expect("somebody");
            slots[first].iter().for_each(|cell| assert_eq!(cell.load(Ordering::Relaxed), first as u64 + 1));
            assert!(won != other.join().expect("no panic"));
        });
    }
}
