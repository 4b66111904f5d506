//! A bell for one rank: peers ring it when they moved bytes, and it costs them next to nothing while nobody sleeps.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use phalanx_mem::{Cells, PlaceError};

use crate::futex::{self, Scope};

/// Wakes the threads of one rank, also those of another process when its word lies in a segment.
///
/// A sleeper arms the bell, looks once more whether there is something to do, and only then sleeps. A ringer changes
/// what the sleeper looks at and then looks whether the bell is armed. The two fences see to it that at least one of
/// them sees the other.
///
/// The word counts how often the bell woke somebody, in all bits but the lowest, which says that it is armed.
#[derive(Debug)]
pub(crate) struct Bell {
    word: Cells<AtomicU32>,
    scope: Scope,
}

impl Bell {
    /// A bell for the threads of this process.
    pub(crate) fn new() -> Result<Bell, PlaceError> {
        Ok(Bell { word: Cells::on_heap(WORDS)?, scope: Scope::Process })
    }

    /// The bell in a word that processes share.
    #[cfg(target_os = "linux")]
    pub(crate) fn shared(word: Cells<AtomicU32>) -> Bell {
        Bell { word, scope: Scope::Host }
    }

    /// Announces a sleeper. Whatever rings from now on ends its sleep.
    pub(crate) fn arm(&self) -> u32 {
        let armed = self.word[0].fetch_or(ARMED, Ordering::Relaxed) | ARMED;
        fence(Ordering::SeqCst);
        armed
    }

    /// Sleeps unless the bell has rung since it was armed: until it rings or a signal comes, at most this long.
    pub(crate) fn sleep(&self, armed: u32, limit: Duration) {
        futex::wait(&self.word[0], armed, limit, self.scope);
    }

    /// Wakes whoever sleeps.
    #[inline]
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        let seen = self.word[0].load(Ordering::Relaxed);
        if seen & ARMED != 0 {
            self.ring_aloud(seen);
        }
    }

    #[cold]
    fn ring_aloud(&self, seen: u32) {
        // Adding to the lowest bit disarms and counts at once. When it fails, somebody else rang since, and whoever
        // armed the bell after that sees what this ringer changed.
        let rang = self.word[0].compare_exchange(seen, seen.wrapping_add(ARMED), Ordering::Relaxed, Ordering::Relaxed);
        if rang.is_ok() {
            futex::wake_all(&self.word[0], self.scope);
        }
    }
}

/// How many words a bell takes.
pub(crate) const WORDS: usize = 1;

const ARMED: u32 = 1;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn no_ring_is_missed() {
        let bells = [(); 2].map(|()| Bell::new().expect("memory"));
        play([[&bells[0], &bells[1]]; 2]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn no_ring_is_missed_between_two_mappings() {
        use std::sync::Arc;

        use phalanx_mem::{LINE, Segment};

        let first = Arc::new(Segment::create(LINE * 2).expect("memfd"));
        let second = Arc::new(Segment::open(first.fd().try_clone_to_owned().expect("free")).expect("sealed"));
        let bell = |segment: &Arc<Segment>, at| {
            Bell::shared(Cells::in_segment(Arc::clone(segment), at * LINE, WORDS).expect("free"))
        };
        let [mine, theirs] = [&first, &second].map(|segment| [0, 1].map(|at| bell(segment, at)));
        play([[&mine[0], &mine[1]], [&theirs[0], &theirs[1]]]);
    }

    /// Two take turns, each with its own view of the two bells. A missed ring costs a minute.
    fn play(bells: [[&Bell; 2]; 2]) {
        const ROUNDS: u64 = 2000;
        let (word, began) = (AtomicU64::new(0), Instant::now());
        thread::scope(|scope| {
            for me in 0..2_u64 {
                let (bells, word) = (bells[me as usize], &word);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        while word.load(Ordering::Acquire) != round * 2 + me {
                            let armed = bells[me as usize].arm();
                            if word.load(Ordering::Acquire) != round * 2 + me {
                                bells[me as usize].sleep(armed, Duration::from_secs(60));
                            }
                        }
                        word.store(round * 2 + me + 1, Ordering::Release);
                        bells[1 - me as usize].ring();
                    }
                });
            }
        });
        assert_eq!(word.into_inner(), ROUNDS * 2);
        assert!(began.elapsed() < Duration::from_secs(60), "a ring was missed");
    }
}
