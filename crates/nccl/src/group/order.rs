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
pub(super) struct Place {
    /// Whose operation it is. Those of one group need no order of this kind, and may come in another: what a batch has numbered it begins at its end.
    group: usize,
    state: Mutex<State>,
}

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
    /// The calling thread's next place on a device, for an operation of this group.
    pub(super) fn next(device: Device, group: usize) -> Arc<Place> {
        let next = LAST.try_with(|last| {
            let mut last = last.borrow_mut();
            let before = last.get(&device).cloned();
            let place = Arc::new(Place { group, state: Mutex::new(State { before, ..State::default() }) });
            last.insert(device, Arc::clone(&place));
            place
        });
        // A thread at its very end has nothing that could come before.
        next.unwrap_or_default()
    }

    /// Whether all of other groups before it have passed. If not, the bell is rung when the next of them does.
    pub(super) fn has_come(&self, bell: &Arc<dyn Bell>) -> bool {
        let mut earlier = self.awaited();
        while let Some(before) = earlier {
            let mut state = lock(&before.state);
            if !state.has_passed && before.group != self.group {
                state.bell = Some(Arc::clone(bell));
                return false;
            }
            earlier = state.before.clone();
        }
        true
    }

    /// It is on its stream, or will not come there any more.
    pub(super) fn pass(&self) {
        // Of many that fail none is kept by the next.
        self.awaited();
        let bell = {
            let mut state = lock(&self.state);
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
            let before = lock(&self.state).before.clone()?;
            let earlier = {
                let state = lock(&before.state);
                if state.has_passed { Some(state.before.clone()) } else { None }
            };
            match earlier {
                Some(earlier) => lock(&self.state).before = earlier,
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
        let (bell, places) = (bell(), [0, 1, 2].map(|group| Place::next(Device(1), group)));
        assert!(places[0].has_come(&bell) && !places[1].has_come(&bell) && !places[2].has_come(&bell));
        places[0].pass();
        assert_eq!(bell.count(), 1);
        assert!(places[1].has_come(&bell) && !places[2].has_come(&bell));
        places[1].pass();
        assert!(places[2].has_come(&bell) && bell.count() == 2);
    }

    #[test]
    fn one_that_fails_early_lets_nobody_past_those_before_it() {
        let (bell, places) = (bell(), [0, 1, 2, 3].map(|group| Place::next(Device(2), group)));
        places[2].pass();
        places[1].pass();
        assert!(!places[3].has_come(&bell));
        places[0].pass();
        assert!(places[3].has_come(&bell) && bell.count() == 1);
    }

    #[test]
    fn devices_and_threads_are_in_no_order() {
        let bell = bell();
        let _waits = Place::next(Device(3), 0);
        assert!(Place::next(Device(4), 1).has_come(&bell));
        let elsewhere = thread::spawn(|| Place::next(Device(3), 1));
        assert!(elsewhere.join().expect("no panic").has_come(&bell));
        assert!(!Place::next(Device(3), 1).has_come(&bell));
    }

    /// A batch has its number when it is begun, and its place when it ends.
    #[test]
    fn those_of_one_group_wait_for_other_groups_alone() {
        let (bell, [other, later, batch, last]) = (bell(), [0, 1, 1, 2].map(|group| Place::next(Device(5), group)));
        assert!(!batch.has_come(&bell));
        other.pass();
        assert!(batch.has_come(&bell) && !last.has_come(&bell));
        batch.pass();
        assert!(!last.has_come(&bell));
        later.pass();
        assert!(last.has_come(&bell));
    }
}
