//! What becomes of a call's failure on its way to the caller: whoever asked for it is told.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use super::{Group, Shared};
use crate::backend::{Finished, Pending};
use crate::{Error, Result, Site};

/// A group that is not kept by this: it may have been left.
#[derive(Clone, Debug)]
pub struct WeakGroup {
    shared: Weak<Shared>,
    timeout: Duration,
    site: Option<Site>,
}

impl Group {
    /// A handle that does not keep the group.
    pub fn downgrade(&self) -> WeakGroup {
        WeakGroup { shared: Arc::downgrade(&self.shared), timeout: self.timeout, site: self.site }
    }

    /// The same result; alarms are told where it is a failure that is not the arguments' fault.
    pub(super) fn told<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.sound(error);
        }
        result
    }

    /// The same operation under way; alarms, where there are any, are told when whoever waits for it gets a failure.
    pub(super) fn alarmed(&self, pending: Box<dyn Pending>) -> Box<dyn Pending> {
        match self.shared.options.alarms.is_empty() {
            true => pending,
            false => Box::new(Alarmed { pending, group: self.downgrade() }),
        }
    }

    /// Tells the alarms of a failure.
    #[cold]
    pub(super) fn sound(&self, error: &Error) {
        for alarm in self.shared.options.alarms.iter().filter(|_| !matches!(error, Error::Usage(_))) {
            // A panic must not take the place of the error.
            let _ = catch_unwind(AssertUnwindSafe(|| alarm.failed(self, error)));
        }
    }
}

impl WeakGroup {
    /// The group, if somebody still has a handle of it.
    pub fn upgrade(&self) -> Option<Group> {
        Some(Group { shared: self.shared.upgrade()?, timeout: self.timeout, site: self.site })
    }
}

/// An operation under way of a group that has alarms.
struct Alarmed {
    pending: Box<dyn Pending>,
    group: WeakGroup,
}

impl Alarmed {
    fn told(&self, end: Option<Result<Finished>>) -> Option<Result<Finished>> {
        if let (Some(Err(error)), Some(group)) = (&end, self.group.upgrade()) {
            group.sound(error);
        }
        end
    }
}

impl Pending for Alarmed {
    fn is_done(&self) -> bool {
        self.pending.is_done()
    }

    fn poll(&mut self, waker: &Waker) -> Option<Result<Finished>> {
        let end = self.pending.poll(waker);
        self.told(end)
    }

    fn wait(&mut self, limit: Option<Duration>) -> Option<Result<Finished>> {
        let end = self.pending.wait(limit);
        self.told(end)
    }
}
