//! What an object of Python has until it is left. Its end may take a while, with which other threads of Python do not have to wait.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use pyo3::Python;

/// Something until it is taken, or its object is collected.
pub(crate) struct Held<T: Send>(RwLock<Option<T>>);

impl<T: Send> Held<T> {
    pub(crate) fn new(held: T) -> Held<T> {
        Held(RwLock::new(Some(held)))
    }

    /// What is there, which several threads may look at.
    pub(crate) fn look(&self) -> RwLockReadGuard<'_, Option<T>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes it, once nobody looks at it any more.
    pub(crate) fn take(&self) -> Option<T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<T: Send> Drop for Held<T> {
    fn drop(&mut self) {
        let held = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(held) = held {
            Python::try_attach(|py| py.detach(|| drop(held)));
        }
    }
}
