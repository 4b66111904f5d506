//! What becomes of a call's failure on its way to the caller: its ranks get their numbers in the world, and whoever asked for it is told.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use super::{Group, Shared};
use crate::backend::{Finished, Pending};
use crate::call::Call;
use crate::recorder::Flight;
use crate::{Desync, Error, Result, Site};

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

    /// The same result, whose failure the caller gets; alarms are told of one that is not the arguments' fault.
    pub(super) fn told<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.failed(error))
    }

    /// The same of a call that was played.
    pub(super) fn told_of<T>(&self, call: &Call, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.failed(placed(error, |desync| call.flight.site_in(desync))))
    }

    /// The same operation under way, whose failure whoever waits for it gets.
    pub(super) fn alarmed(&self, pending: Box<dyn Pending>, flight: Flight) -> Box<dyn Pending> {
        flight.set_ahead(true);
        Box::new(Alarmed { pending, members: Arc::clone(&self.shared.members), group: self.downgrade(), flight })
    }

    /// A failure as the caller gets it, of which alarms are told.
    #[cold]
    pub(super) fn failed(&self, error: Error) -> Error {
        let error = placed(error, |desync| self.shared.recorder.site_of(desync.sequence));
        let error = error.in_world(&self.shared.members);
        self.sound(&error);
        error
    }

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
        Some(Group { shared: self.shared.upgrade()?, timeout: self.timeout, site: self.site })
    }
}

/// The same error, with the place of what ranks disagree about.
fn placed(mut error: Error, site: impl FnOnce(&Desync) -> Option<Site>) -> Error {
    if let Error::Desync(desync) = &mut error
        && desync.site.is_none()
    {
        desync.site = site(desync);
    }
    error
}

/// An operation under way.
struct Alarmed {
    pending: Box<dyn Pending>,
    members: Arc<[usize]>,
    group: WeakGroup,
    flight: Flight,
}

impl Alarmed {
    fn told(&self, end: Option<Result<Finished>>) -> Option<Result<Finished>> {
        end.map(|end| {
            end.map_err(|error| {
                let error = placed(error, |desync| self.flight.site_in(desync)).in_world(&self.members);
                if let Some(group) = self.group.upgrade() {
                    group.sound(&error);
                }
                error
            })
        })
    }
}

impl Pending for Alarmed {
    fn is_done(&self) -> bool {
        self.pending.is_done()
    }

    fn poll(&mut self, waker: &Waker) -> Option<Result<Finished>> {
        let end = self.pending.poll(waker);
        if end.is_none() {
            self.flight.set_ahead(false);
        }
        self.told(end)
    }

    fn wait(&mut self, limit: Option<Duration>) -> Option<Result<Finished>> {
        if !self.pending.is_done() {
            self.flight.set_ahead(false);
        }
        let end = self.pending.wait(limit);
        if end.is_none() {
            // Whoever asked goes on.
            self.flight.set_ahead(true);
        }
        self.told(end)
    }
}
