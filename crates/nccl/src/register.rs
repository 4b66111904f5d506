//! Numbers in place of pointers: what was given out is known again, and what is gone is never followed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

/// What the numbers stand for that were given out. None is given twice, and none is 0.
#[derive(Debug)]
pub(crate) struct Register<T> {
    last: AtomicU64,
    held: Mutex<FxHashMap<u64, Arc<T>>>,
}

impl<T> Register<T> {
    pub(crate) fn new() -> Register<T> {
        Register { last: AtomicU64::new(0), held: Mutex::default() }
    }

    /// A number for this.
    pub(crate) fn enter(&self, value: T) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        locked(&self.held).insert(number, Arc::new(value));
        number
    }

    /// What a number stands for.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<T>> {
        locked(&self.held).get(&number).cloned()
    }

    /// The same, for the last time.
    pub(crate) fn take(&self, number: u64) -> Option<Arc<T>> {
        locked(&self.held).remove(&number)
    }

    /// How many numbers stand for something.
    pub(crate) fn len(&self) -> usize {
        locked(&self.held).len()
    }

    /// Forgets all of which this is so.
    pub(crate) fn forget(&self, is_gone: impl Fn(&T) -> bool) {
        locked(&self.held).retain(|_, value| !is_gone(value));
    }
}

/// What a lock guards; whoever panicked with it left it as whole as it was, since no change here is made of two.
pub(crate) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_known_until_it_is_taken_back() {
        let register = Register::new();
        let (first, second) = (register.enter("a"), register.enter("b"));
        assert_eq!(register.find(first).as_deref(), Some(&"a"));
        assert_eq!(register.take(first).as_deref(), Some(&"a"));
        assert!(register.take(first).is_none() && register.find(0).is_none());
        assert!(register.enter("c") > second);
        register.forget(|value| *value == "b");
        assert!(register.find(second).is_none());
        assert_eq!(register.len(), 1);
    }
}
