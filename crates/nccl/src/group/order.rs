//! In which order operations of several groups come to a device: that in which a thread of the program has begun them. Those of one group are
//! in the order of their numbers, and messages between two ranks are in none that all ranks have in common.
//!
//! An operation on a device waits for the other ranks' part of it. Where the device runs one after the other, two ranks on which the
//! operations of two groups came in different orders wait for each other. Groups have threads of their own, which race; so an operation only
//! has its turn once the one that its thread has begun before, in whatever group, is on its stream or has failed. What several threads begin
//! is in no order: theirs is another on each rank, and whoever makes a communicator waits for the other ranks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::hall::lock;
use crate::api::{Bell, Device};

/// The place of an operation among those that a thread has begun on a device.
#[derive(Default)]
pub(super) struct Place(Mutex<State>);

#[derive(Default)]
struct State {
    /// Whether it is on its stream, or will not come there any more.
    has_passed: bool,
    /// The one before it, while that is of interest.
    before: Option<Arc<Place>>,
    /// Rung when it passes.
    bell: Option<Arc<dyn Bell>>,
}

impl Place {
    /// The calling thread's next place on a device.
    pub(super) fn next(device: Device) -> Arc<Place> {
        let next = LAST.try_with(|last| {
            let mut last = last.borrow_mut();
            let before = last.get(&device).cloned();
            let place = Arc::new(Place(Mutex::new(State { before, ..State::default() })));
            last.insert(device, Arc::clone(&place));
            place
        });
        // A thread at its very end has nothing that could come before.
        next.unwrap_or_default()
    }

    /// Whether all before it have passed. If not, the bell is rung when the next of them does.
    pub(super) fn has_come(&self, bell: &Arc<dyn Bell>) -> bool {
        while let Some(before) = self.awaited() {
            let mut state = lock(&before.0);
            if !state.has_passed {
                state.bell = Some(Arc::clone(bell));
                return false;
            }
        }
        true
    }

    /// It is on its stream, or will not come there any more.
    pub(super) fn pass(&self) {
        // Of many that fail none is kept by the next.
        self.awaited();
        let bell = {
            let mut state = lock(&self.0);
            state.has_passed = true;
            state.bell.take()
        };
        if let Some(bell) = bell {
            bell.ring();
        }
    }

    /// The last before it that has not passed. One that has failed may have passed before others that came earlier.
    fn awaited(&self) -> Option<Arc<Place>> {
        loop {
            let before = lock(&self.0).before.clone()?;
            let earlier = {
                let state = lock(&before.0);
                if state.has_passed { Some(state.before.clone()) } else { None }
            };
            match earlier {
                Some(earlier) => lock(&self.0).before = earlier,
                None => return Some(before),
            }
        }
    }
}

thread_local! {
    /// The last place that was given out on each device.
    static LAST: RefCell<BTreeMap<Device, Arc<Place>>> = const { RefCell::new(BTreeMap::new()) };
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicU64);

    impl Bell for Counter {
        fn count(&self) -> u64 {
            self.0.load(Ordering::Acquire)
        }

        fn ring(&self) {
            self.0.fetch_add(1, Ordering::AcqRel);
        }

        fn wait(&self, _: u64, _: Option<Duration>) {}
    }

    fn bell() -> Arc<dyn Bell> {
        Arc::new(Counter::default())
    }

    #[test]
    fn each_comes_after_the_one_before_and_is_told() {
        let (bell, places) = (bell(), [(); 3].map(|()| Place::next(Device(1))));
        assert!(places[0].has_come(&bell) && !places[1].has_come(&bell) && !places[2].has_come(&bell));
        places[0].pass();
        assert_eq!(bell.count(), 1);
        assert!(places[1].has_come(&bell) && !places[2].has_come(&bell));
        places[1].pass();
        assert!(places[2].has_come(&bell) && bell.count() == 2);
    }

    #[test]
    fn one_that_fails_early_lets_nobody_past_those_before_it() {
        let (bell, places) = (bell(), [(); 4].map(|()| Place::next(Device(2))));
        places[2].pass();
        places[1].pass();
        assert!(!places[3].has_come(&bell));
        places[0].pass();
        assert!(places[3].has_come(&bell) && bell.count() == 1);
    }

    #[test]
    fn devices_and_threads_are_in_no_order() {
        let bell = bell();
        let _waits = Place::next(Device(3));
        assert!(Place::next(Device(4)).has_come(&bell));
        let elsewhere = thread::spawn(|| Place::next(Device(3)));
        assert!(elsewhere.join().expect("no panic").has_come(&bell));
        assert!(!Place::next(Device(3)).has_come(&bell));
    }
}
