//! The synchronisation that rings, boards and records are made of: that of `std`, or under `--cfg loom` that of the model checker.
//! Nothing else in this crate is model-checked.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicU64, Ordering, fence},
};

#[cfg(not(loom))]
pub(crate) use bare::Shadow;

#[cfg(loom)]
pub(crate) use modelled::Shadow;

/// What shared memory needs beside its bytes outside a model: nothing.
#[cfg(not(loom))]
mod bare {
    use std::ops::Range;

    pub(crate) struct Shadow;

    impl Shadow {
        pub(crate) fn new(_byte_len: usize) -> Shadow {
            Shadow
        }

        #[inline]
        pub(crate) fn reads(&self, _range: Range<usize>) {}

        #[inline]
        pub(crate) fn writes(&self, _range: Range<usize>) {}
    }
}

/// The model checker cannot watch plain memory. So each byte has a cell beside it that is read or written along with it,
/// by which the checker sees every race, and each word is an atomic of the checker's own.
#[cfg(loom)]
mod modelled {
    use std::ops::Range;

    use loom::cell::UnsafeCell;
    use loom::sync::atomic::AtomicU64;

    pub(crate) struct Shadow {
        words: Vec<AtomicU64>,
        cells: Vec<UnsafeCell<()>>,
    }

    impl Shadow {
        pub(crate) fn new(byte_len: usize) -> Shadow {
            let words = (0..byte_len / size_of::<u64>()).map(|_| AtomicU64::new(0)).collect();
            let cells = (0..byte_len).map(|_| UnsafeCell::new(())).collect();
            Shadow { words, cells }
        }

        pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
            &self.words[offset / size_of::<u64>()]
        }

        pub(crate) fn reads(&self, range: Range<usize>) {
            self.cells[range].iter().for_each(|cell| cell.with(|_| ()));
        }

        pub(crate) fn writes(&self, range: Range<usize>) {
            self.cells[range].iter().for_each(|cell| cell.with_mut(|_| ()));
        }
    }

    // SAFETY: the cells hold nothing; only the checker looks at who touches them when.
    unsafe impl Sync for Shadow {}
}
