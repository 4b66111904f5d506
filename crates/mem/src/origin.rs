//! Whether this process is the one that something was made in, or was forked from it. What follows from that is not known here.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::page::Page;

/// The mark of a process, which a child that is forked from it does not have. Looking at it is one load.
///
/// Only Linux wipes it; elsewhere a child looks like its parent.
pub struct Origin {
    page: Page,
}

impl Origin {
    /// Marks this process.
    ///
    /// # Errors
    ///
    /// When the system has no memory left.
    pub fn new() -> io::Result<Origin> {
        let origin = Origin { page: Page::zeroed(1)? };
        origin.mark().store(HERE, Ordering::Relaxed);
        Ok(origin)
    }

    /// Whether this is still the process in which the mark was made.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.mark().load(Ordering::Relaxed) == HERE
    }

    fn mark(&self) -> &AtomicU8 {
        // SAFETY: the page is valid for one byte for as long as `self` is borrowed, and nobody uses it but through this.
        unsafe { AtomicU8::from_ptr(self.page.start().as_ptr()) }
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Origin {{ is_here: {} }}", self.is_here())
    }
}

/// What a wiped page does not say.
const HERE: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_where_it_was() {
        let origin = Origin::new().expect("a page");
        assert!(origin.is_here());
        assert_eq!(format!("{origin:?}"), "Origin { is_here: true }");
    }
}
