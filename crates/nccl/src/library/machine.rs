//! The process as it is: the clock that never goes back, threads of the system, and bells to wait on.

use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::api::{Bell, Process};
use crate::register::locked;

/// The process as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine(());

impl Machine {
    /// All of a process tell one time, which begins when it is first asked for.
    pub fn new() -> Machine {
        Machine::default()
    }
}

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Process for Machine {
    fn now(&self) -> Duration {
        ORIGIN.elapsed()
    }

    fn spawn(&self, name: String, body: Box<dyn FnOnce() + Send>) -> bool {
        thread::Builder::new().name(name).spawn(body).is_ok()
    }

    fn give_way(&self) {
        thread::yield_now();
    }

    fn bell(&self) -> Arc<dyn Bell> {
        Arc::new(Rung { count: Mutex::new(0), wake: Condvar::new() })
    }
}

#[derive(Debug)]
struct Rung {
    count: Mutex<u64>,
    wake: Condvar,
}

impl Bell for Rung {
    fn count(&self) -> u64 {
        *locked(&self.count)
    }

    fn ring(&self) {
        *locked(&self.count) += 1;
        self.wake.notify_all();
    }

    fn wait(&self, seen: u64, until: Option<Duration>) {
        let count = locked(&self.count);
        let is_quiet = |count: &mut u64| *count <= seen;
        match until {
            None => drop(self.wake.wait_while(count, is_quiet)),
            Some(until) => {
                let left = until.saturating_sub(ORIGIN.elapsed());
                drop(self.wake.wait_timeout_while(count, left, is_quiet));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups whose stacks were made one after the other compare what they have noted.
    #[test]
    fn all_tell_one_time() {
        let first = Machine::new();
        let bell = first.bell();
        bell.wait(bell.count(), Some(first.now() + Duration::from_millis(1)));
        let second = Machine::new();
        let before = first.now();
        let told = second.now();
        assert!((before..=first.now()).contains(&told), "{told:?} after {before:?}");
    }

    #[test]
    fn a_ring_is_not_missed_and_a_wait_is_bounded() {
        let machine = Machine::new();
        let bell = machine.bell();
        let seen = bell.count();
        let other = Arc::clone(&bell);
        assert!(machine.spawn("rings".into(), Box::new(move || other.ring())));
        bell.wait(seen, None);
        assert_eq!(bell.count(), seen + 1);
        bell.wait(seen, Some(Duration::ZERO));
        let until = machine.now() + Duration::from_millis(1);
        bell.wait(bell.count(), Some(until));
        assert!(machine.now() >= until);
    }
}
