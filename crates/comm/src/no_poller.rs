//! Stands in for `poller` where the system has no epoll: there is none, and no rank with
//! sockets.

use std::sync::MutexGuard;
use std::time::Duration;

#[derive(Debug)]
pub(crate) enum Poller {}

#[derive(Debug)]
pub(crate) enum Kick {}

impl Kick {
    pub(crate) fn give(&self) {
        match *self {}
    }
}

impl Poller {
    pub(crate) fn kick(&self) {
        match *self {}
    }

    pub(crate) fn lead(&self) -> Option<MutexGuard<'_, ()>> {
        match *self {}
    }

    pub(crate) fn follow(&self, _sleep: impl FnOnce()) {
        match *self {}
    }

    pub(crate) fn has_followers(&self) -> bool {
        match *self {}
    }

    pub(crate) fn wait(&self, _limit: Duration, _each: impl FnMut(u64)) {
        match *self {}
    }
}
