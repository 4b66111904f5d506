//! A communicator behind its number.
//!
//! *Where it stands.* The library writes a communicator that is split from another when that is done, from a thread of its own. The
//! place is therefore never taken back: eight bytes a communicator.
//!
//! *Who may ask.* Whether a communicator is well may be asked by any thread, but the library does not bear two at once, nor one during
//! an abort: that waits for the one that asks, which is never long. An abort waits for no other call, since ending such a call is
//! what it is for; and nobody waits for an abort to ask, since that may hang.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};
use std::thread;
use std::time::Duration;

use super::table::Opaque;
use crate::api::{Comm, Device};
use crate::register::locked;

/// A place that the library writes to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot(&'static AtomicPtr<std::ffi::c_void>);

impl Slot {
    pub(super) fn new() -> Slot {
        Slot(Box::leak(Box::new(AtomicPtr::new(ptr::null_mut()))))
    }

    /// For the library to write to.
    pub(super) fn place(self) -> *mut Opaque {
        self.0.as_ptr()
    }

    /// What is there; null if nothing is yet.
    pub(super) fn get(self) -> Opaque {
        self.0.load(Ordering::Acquire)
    }
}

/// This rank's number and how many there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) rank: i32,
    pub(super) size: i32,
}

impl Shape {
    /// So many elements of every rank; more than any memory holds where that is so.
    pub(super) fn all(self, count: usize) -> usize {
        count.saturating_mul(usize::try_from(self.size).unwrap_or(usize::MAX))
    }
}

/// A communicator.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) slot: Slot,
    pub(super) device: Device,
    /// Known from the start, or asked for once.
    pub(super) shape: OnceLock<Shape>,
    /// The one it comes from, until that is done making it.
    parent: Mutex<Option<Arc<Member>>>,
    /// Where those come to stand that nobody wants any more, and that it may still make.
    unwanted: Mutex<Vec<Slot>>,
    is_gone: AtomicBool,
    asking: Mutex<()>,
}

impl Member {
    /// One that was asked for, of this shape if that is known, from a parent if it has one.
    pub(super) fn new(slot: Slot, device: Device, shape: Option<Shape>, parent: Option<Arc<Member>>) -> Member {
        let shape = shape.map_or_else(OnceLock::new, OnceLock::from);
        let (unwanted, is_gone, asking) = (Mutex::default(), AtomicBool::new(false), Mutex::default());
        Member { slot, device, shape, parent: Mutex::new(parent), unwanted, is_gone, asking }
    }

    /// The one that is still making it.
    pub(super) fn parent(&self) -> Option<Arc<Member>> {
        locked(&self.parent).clone()
    }

    /// It is made.
    pub(super) fn has_come(&self) {
        *locked(&self.parent) = None;
    }

    /// One that it makes is not wanted any more.
    pub(super) fn disown(&self, child: Slot) {
        locked(&self.unwanted).push(child);
    }

    /// What it has made that nobody wants.
    pub(super) fn orphans(&self) -> Vec<Opaque> {
        let unwanted = std::mem::take(&mut *locked(&self.unwanted));
        unwanted.into_iter().map(Slot::get).filter(|pointer| !pointer.is_null()).collect()
    }

    /// The right to ask how it is; none once it is gone.
    pub(super) fn ask(&self) -> Option<MutexGuard<'_, ()>> {
        loop {
            let asking = self.asking.try_lock();
            if self.is_gone.load(Ordering::Acquire) {
                return None;
            }
            match asking {
                Ok(asking) => return Some(asking),
                Err(TryLockError::Poisoned(asking)) => return Some(asking.into_inner()),
                Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
            }
        }
    }

    /// It goes: nobody asks any more. What is given back is held until it is gone.
    pub(super) fn leave(&self) -> MutexGuard<'_, ()> {
        self.is_gone.store(true, Ordering::Release);
        locked(&self.asking)
    }
}

/// Memory that a communicator knows.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) comm: Comm,
    pub(super) handle: Slot,
}

/// How long whoever asks waits for another one that does.
const PAUSE: Duration = Duration::from_micros(20);
