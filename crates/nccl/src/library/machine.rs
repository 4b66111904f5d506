//! The process as it is: the clock that never goes back, threads of the system, and bells to wait on.

use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::api::{Bell, Process};
use crate::register::locked;

/// The process as it is.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    start: Instant,
}

impl Machine {
    /// Time began when the process first made one: all of them tell one time.
    pub fn new() -> Machine {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        Machine { start: *ORIGIN.get_or_init(Instant::now) }
    }
}

impl Default for Machine {
    fn default() -> Machine {
        Machine::new()
    }
}

impl Process for Machine {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn spawn(&self, name: String, body: Box<dyn FnOnce() + Send>) -> bool {
        thread::Builder::new().name(name).spawn(body).is_ok()
    }

    fn give_way(&self) {
        thread::yield_now();
    }

    fn bell(&self) -> Arc<dyn Bell> {
        Arc::new(Rung { count: Mutex::new(0), wake: Condvar::new(), start: self.start })
    }
}

#[derive(Debug)]
struct Rung {
    count: Mutex<u64>,
    wake: Condvar,
    start: Instant,
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
                let left = until.saturating_sub(self.start.elapsed());
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
