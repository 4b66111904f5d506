//! In which order operations of several groups come to a device: that in which a thread of the program has begun them. Those of one group are
//! in the order of their numbers, and messages between two ranks are in none that all ranks have in common.
//!
//! An operation on a device waits for the other ranks' part of it. Where the device runs one after the other, two ranks on which the
//! operations of two groups came in different orders wait for each other. Groups have threads of their own, which race; so an operation only
//! has its turn once the one that its thread has begun before, in whatever group, is on its stream or has failed. What several threads begin
//! is in no order: theirs is another on each rank, and whoever makes a communicator waits for the other ranks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use phalanx_core::OpKind;

use super::hall::lock;
use crate::api::{Bell, Device};

/// A group, as those know it whose operations are in one order with its own.
pub(super) trait Company: Send + Sync {
    /// What it is called: "group \"rows\"".
    fn title(&self) -> String;

    /// For whom its operation of a number waits, or of whom the group failed, by their numbers in the world, as far as it knows.
    fn awaited(&self, sequence: u32) -> Vec<usize>;
}

/// An operation that a thread has begun: whose it is, and which.
#[derive(Clone)]
pub(super) struct Begun {
    pub(super) group: Weak<dyn Company>,
    pub(super) op: OpKind,
    pub(super) sequence: u32,
}

impl Begun {
    fn is_of_group_of(&self, other: &Begun) -> bool {
        Weak::ptr_eq(&self.group, &other.group)
    }
}

/// An operation that failed before it came to its stream, and when.
pub(super) struct Failure {
    pub(super) begun: Begun,
    pub(super) at: Duration,
}

/// The place of an operation among those that a thread has begun on a device.
pub(super) struct Place {
    /// Operations of one group need no order of this kind, and may come in another: what a batch has numbered it begins at its end.
    begun: Begun,
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
    /// The last failure, its own or of one before it, without which those behind would not have had their turn.
    failure: Option<Arc<Failure>>,
}

impl State {
    /// Of failures at one time, the one that is known stays: it came first in the order.
    fn note(&mut self, failure: Arc<Failure>) {
        if self.failure.as_ref().is_none_or(|known| known.at < failure.at) {
            self.failure = Some(failure);
        }
    }
}

impl Place {
    /// The calling thread's next place on a device, for this operation.
    pub(super) fn next(device: Device, begun: Begun) -> Arc<Place> {
        let after =
            |before| Arc::new(Place { begun: begun.clone(), state: Mutex::new(State { before, ..State::default() }) });
        let next = LAST.try_with(|last| {
            let mut last = last.borrow_mut();
            let place = after(last.get(&device).cloned());
            last.insert(device, Arc::clone(&place));
            place
        });
        // A thread at its very end has nothing that could come before.
        next.unwrap_or_else(|_| after(None))
    }

    /// Whether all of other groups before it have passed. If not, the bell is rung when the next of them does.
    pub(super) fn has_come(&self, bell: &Arc<dyn Bell>) -> bool {
        let mut earlier = self.awaited();
        while let Some(before) = earlier {
            let mut state = lock(&before.state);
            if !state.has_passed && !before.begun.is_of_group_of(&self.begun) {
                state.bell = Some(Arc::clone(bell));
                return false;
            }
            earlier = state.before.clone();
        }
        true
    }

    /// What holds it up: the first of all before it that have not passed, unless that is of its own group.
    pub(super) fn held_by(&self) -> Option<Begun> {
        let (mut first, mut earlier) = (None, self.awaited());
        while let Some(before) = earlier {
            let state = lock(&before.state);
            if !state.has_passed {
                first = Some(before.begun.clone());
            }
            earlier = state.before.clone();
        }
        first.filter(|first| !first.is_of_group_of(&self.begun))
    }

    /// The last failure of another group that let it have its turn, once it has it.
    pub(super) fn failure(&self) -> Option<Arc<Failure>> {
        self.awaited();
        lock(&self.state).failure.clone().filter(|failure| !failure.begun.is_of_group_of(&self.begun))
    }

    /// It is on its stream.
    pub(super) fn pass(&self) {
        self.end(None);
    }

    /// It has failed, and where it is not on its stream will not come there any more.
    pub(super) fn fail(&self, now: Duration) {
        self.end(Some(now));
    }

    fn end(&self, failed: Option<Duration>) {
        // Of many that fail none is kept by the next.
        self.awaited();
        let bell = {
            let mut state = lock(&self.state);
            if let Some(at) = failed.filter(|_| !state.has_passed) {
                state.note(Arc::new(Failure { begun: self.begun.clone(), at }));
            }
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
            let passed = {
                let state = lock(&before.state);
                state.has_passed.then(|| (state.before.clone(), state.failure.clone()))
            };
            let Some((earlier, failure)) = passed else { return Some(before) };
            let mut state = lock(&self.state);
            state.before = earlier;
            failure.into_iter().for_each(|failure| state.note(failure));
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

    struct Nobody;

    impl Company for Nobody {
        fn title(&self) -> String {
            String::new()
        }

        fn awaited(&self, _: u32) -> Vec<usize> {
            Vec::new()
        }
    }

    /// Places on a device of operations of the groups of these numbers; that of the operation is its place among them.
    fn places<const COUNT: usize>(device: i32, groups: [usize; COUNT]) -> [Arc<Place>; COUNT] {
        let all: Vec<Arc<dyn Company>> = (0..COUNT).map(|_| Arc::new(Nobody) as Arc<dyn Company>).collect();
        let mut sequence = 0..;
        groups.map(|group| place(device, &all[group], sequence.next().expect("without an end")))
    }

    fn place(device: i32, group: &Arc<dyn Company>, sequence: u32) -> Arc<Place> {
        let (group, op) = (Arc::downgrade(group), OpKind::Barrier);
        Place::next(Device(device), Begun { group, op, sequence })
    }

    fn held_by(place: &Place) -> Option<u32> {
        place.held_by().map(|begun| begun.sequence)
    }

    fn failed(place: &Place) -> Option<u32> {
        place.failure().map(|failure| failure.begun.sequence)
    }

    #[test]
    fn each_comes_after_the_one_before_and_is_told() {
        let (bell, places) = (bell(), places(1, [0, 1, 2]));
        assert!(places[0].has_come(&bell) && !places[1].has_come(&bell) && !places[2].has_come(&bell));
        places[0].pass();
        assert_eq!(bell.count(), 1);
        assert!(places[1].has_come(&bell) && !places[2].has_come(&bell));
        places[1].pass();
        assert!(places[2].has_come(&bell) && bell.count() == 2);
    }

    #[test]
    fn one_that_fails_early_lets_nobody_past_those_before_it() {
        let (bell, places) = (bell(), places(2, [0, 1, 2, 3]));
        places[2].pass();
        places[1].pass();
        assert!(!places[3].has_come(&bell));
        places[0].pass();
        assert!(places[3].has_come(&bell) && bell.count() == 1);
    }

    #[test]
    fn devices_and_threads_are_in_no_order() {
        let bell = bell();
        let _waits = places(3, [0]);
        assert!(places(4, [0])[0].has_come(&bell));
        let elsewhere = thread::spawn(|| places(3, [0]));
        assert!(elsewhere.join().expect("no panic")[0].has_come(&bell));
        assert!(!places(3, [0])[0].has_come(&bell));
    }

    /// A batch has its number when it is begun, and its place when it ends.
    #[test]
    fn those_of_one_group_wait_for_other_groups_alone() {
        let (bell, [other, later, batch, last]) = (bell(), places(5, [0, 1, 1, 2]));
        assert!(!batch.has_come(&bell));
        other.pass();
        assert!(batch.has_come(&bell) && !last.has_come(&bell));
        batch.pass();
        assert!(!last.has_come(&bell));
        later.pass();
        assert!(last.has_come(&bell));
    }

    #[test]
    fn the_first_of_a_chain_holds_all_behind_it_up_but_those_of_its_own_group() {
        let [first, second, third, own] = places(6, [0, 1, 2, 0]);
        assert_eq!([&first, &second, &third, &own].map(|place| held_by(place)), [None, Some(0), Some(0), None]);
        first.pass();
        assert_eq!([&second, &third, &own].map(|place| held_by(place)), [None, Some(1), Some(1)]);
        second.pass();
        third.pass();
        assert_eq!(held_by(&own), None);
    }

    #[test]
    fn a_failure_that_let_others_have_their_turn_is_known_to_all_behind_it() {
        let seconds = Duration::from_secs;
        let [hung, its_next, held, behind, last] = places(7, [0, 0, 1, 2, 3]);
        hung.fail(seconds(2));
        its_next.fail(seconds(2));
        assert_eq!(failed(&its_next), None, "it is of its own group");
        assert_eq!(failed(&held), Some(0), "the first that failed, not the one just before it");
        held.pass();
        assert_eq!(failed(&behind), Some(0), "it has come through another");
        // What is on its stream has let others pass, whatever comes of it.
        held.fail(seconds(3));
        assert_eq!(failed(&behind), Some(0));
        behind.fail(seconds(4));
        assert_eq!(failed(&last), Some(3), "the last counts");
    }
}
