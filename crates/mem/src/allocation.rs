//! Zeroed heap memory with an alignment of its own. It holds bytes and frees them; who may touch them is decided elsewhere.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// The allocator could not give the memory asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of memory: {byte_len} bytes could not be allocated")]
pub struct OutOfMemory {
    /// The number of bytes asked for.
    pub byte_len: usize,
}

/// Owned zeroed bytes, freed on drop.
pub(crate) struct Allocation {
    start: NonNull<u8>,
    layout: Layout,
}

impl Allocation {
    /// Allocates `byte_len` zeroed bytes aligned to `align`, a power of two of at most [`MAX_ALIGN`].
    pub(crate) fn zeroed(byte_len: usize, align: usize) -> Result<Allocation, OutOfMemory> {
        debug_assert!(align <= MAX_ALIGN);
        let layout = Layout::from_size_align(byte_len, align).map_err(|_| OutOfMemory { byte_len })?;
        if byte_len == 0 {
            return Ok(Allocation { start: NonNull::<Page>::dangling().cast(), layout });
        }
        // SAFETY: the layout has a size other than zero, by the check above.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(OutOfMemory { byte_len })?;
        Ok(Allocation { start, layout })
    }

    /// The first byte. Valid for reads and writes of the whole length, which is initialised.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.layout.size() != 0 {
            // SAFETY: `start` came from `alloc_zeroed` with this very layout and is freed once, here.
            unsafe { dealloc(self.start.as_ptr(), self.layout) }
        }
    }
}

// SAFETY: the allocation is owned, and the allocator may free on any thread.
unsafe impl Send for Allocation {}
// SAFETY: a shared reference gives out a pointer only; using it is the unsafe act of whoever does.
unsafe impl Sync for Allocation {}

/// The largest alignment an allocation may ask for, and the one of the pointer of an empty one.
pub(crate) const MAX_ALIGN: usize = align_of::<Page>();

#[repr(align(4096))]
struct Page;
