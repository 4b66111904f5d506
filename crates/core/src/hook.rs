//! Hooks: what a program wants to see of every operation, before it begins and after its end.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::recorder::{Flight, Record, State};
use crate::{Error, Group};

/// Something that is told of every operation of a group.
///
/// It runs in the way of the operation: on the thread that calls or waits, or on the one that plays asynchronous operations,
/// where locks of the group may be held. So it must be quick and must not call the group. What panics in it is dropped.
pub trait Hook: Send + Sync {
    /// An operation was called and found in order; it has not begun yet.
    fn before(&self, _record: &Record) {}

    /// An operation has ended, well or in this error.
    fn after(&self, _record: &Record, _error: Option<&Error>) {}
}

/// Something that is told when calls of a group fail, but for those whose arguments are wrong. It costs nothing until then.
pub trait Alarm: Send + Sync {
    /// A call has failed, on the thread that is about to get the error. No lock of the group is held.
    fn failed(&self, group: &Group, error: &Error);
}

impl fmt::Debug for dyn Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Alarm")
    }
}

impl fmt::Debug for dyn Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

/// The hooks of one operation, with what they are told of it.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    hooks: Arc<Vec<Arc<dyn Hook>>>,
    /// The world's ranks that are the group's.
    members: Arc<[usize]>,
    record: Record,
}

impl Watch {
    /// Tells the hooks of an operation that has just been recorded; nothing where there are none.
    pub(crate) fn begin(
        hooks: &Arc<Vec<Arc<dyn Hook>>>,
        members: &Arc<[usize]>,
        record: impl FnOnce() -> Record,
    ) -> Option<Box<Watch>> {
        if hooks.is_empty() {
            return None;
        }
        let watch = Watch { hooks: Arc::clone(hooks), members: Arc::clone(members), record: record() };
        watch.tell(|hook| hook.before(&watch.record));
        Some(Box::new(watch))
    }

    /// Tells the hooks that the operation has ended.
    pub(crate) fn end(&self, flight: &Flight, now: Duration, error: Option<&Error>) {
        let state = error.map_or(State::Done, |error| State::Failed(error.kind()));
        // Newer operations may have taken the place of the entry in the meantime.
        let record = flight.record().unwrap_or(Record { ended: Some(now), state, ..self.record });
        let error = error.cloned().map(|error| error.in_world(&self.members));
        self.tell(|hook| hook.after(&record, error.as_ref()));
    }

    fn tell(&self, what: impl Fn(&dyn Hook)) {
        for hook in self.hooks.iter() {
            // A panic must not end the thread that plays for everybody.
            let _ = catch_unwind(AssertUnwindSafe(|| what(&**hook)));
        }
    }
}
