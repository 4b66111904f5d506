//! What becomes of a call's failure on its way to the caller: whoever asked for it is told.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Group, Shared};
use crate::{Error, Result};

/// A group that is not kept by this: it may have been left.
#[derive(Clone, Debug)]
pub struct WeakGroup {
    shared: Weak<Shared>,
    timeout: Duration,
}

impl Group {
    /// A handle that does not keep the group.
    pub fn downgrade(&self) -> WeakGroup {
        WeakGroup { shared: Arc::downgrade(&self.shared), timeout: self.timeout }
    }

    /// The same result; alarms are told where it is a failure that is not the arguments' fault.
    pub(super) fn told<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.sound(error);
        }
        result
    }

    /// A handle to tell alarms by, where there are any.
    pub(super) fn alarmed(&self) -> Option<WeakGroup> {
        (!self.shared.options.alarms.is_empty()).then(|| self.downgrade())
    }

    #[cold]
    fn sound(&self, error: &Error) {
        for alarm in self.shared.options.alarms.iter().filter(|_| !matches!(error, Error::Usage(_))) {
            // A panic must not take the place of the error.
            let _ = catch_unwind(AssertUnwindSafe(|| alarm.failed(self, error)));
        }
    }
}

impl WeakGroup {
    /// The group, if somebody still has a handle of it.
    pub fn upgrade(&self) -> Option<Group> {
        Some(Group { shared: self.shared.upgrade()?, timeout: self.timeout })
    }

    pub(crate) fn sound(&self, error: &Error) {
        if let Some(group) = self.upgrade() {
            group.sound(error);
        }
    }
}
