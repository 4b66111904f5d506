//! A bell for one rank: peers ring it when they moved bytes, and it costs them next to nothing while nobody sleeps.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Wakes the threads of one rank.
///
/// A sleeper arms the bell, looks once more whether there is something to do, and only then sleeps. A ringer changes
/// what the sleeper looks at and then looks whether the bell is armed. The two fences see to it that at least one of
/// them sees the other.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    armed: AtomicBool,
    rung: Mutex<u64>,
    wake: Condvar,
}

impl Bell {
    /// Announces a sleeper. Whatever rings from now on ends its sleep.
    pub(crate) fn arm(&self) -> u64 {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        self.armed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        *rung
    }

    /// Sleeps until the bell has rung since it was armed, at most this long.
    pub(crate) fn sleep(&self, armed: u64, limit: Duration) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let slept = self.wake.wait_timeout_while(rung, limit, |rung| *rung == armed);
        drop(slept.unwrap_or_else(PoisonError::into_inner));
    }

    /// Wakes whoever sleeps.
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) {
            self.ring_aloud();
        }
    }

    #[cold]
    fn ring_aloud(&self) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        self.armed.store(false, Ordering::Relaxed);
        *rung += 1;
        self.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use super::*;

    #[test]
    fn no_ring_is_missed() {
        const ROUNDS: u64 = 2000;
        let (bells, word) = ([Bell::default(), Bell::default()], AtomicU64::new(0));
        thread::scope(|scope| {
            for me in 0..2_u64 {
                let (bells, word) = (&bells, &word);
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
    }
}
