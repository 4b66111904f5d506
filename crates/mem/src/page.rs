//! Pages of this process alone that are not swapped, dumped or inherited where the system can help it. It knows nothing
//! of content.

use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Zeroed private memory in pages of its own, unmapped on drop.
pub(crate) struct Page {
    start: NonNull<u8>,
    byte_len: usize,
}

impl Page {
    /// Maps `byte_len` zero bytes, which are not none, to read and write.
    pub(crate) fn zeroed(byte_len: usize) -> io::Result<Page> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null hint lets the kernel choose addresses that are in nobody's use.
        let start = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), byte_len, access, MapFlags::PRIVATE) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let page = Page { start, byte_len };
        page.keep_from_children();
        Ok(page)
    }

    /// The first byte, at the start of a page. Valid for reads and writes of the whole length, which is initialised.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Keeps the content from disks. Each of these makes a leak less likely and none is needed to work, so a system that refuses
    /// one is served without: locked memory is scarce in containers, and old kernels do not know every advice.
    pub(crate) fn shelter(&self) {
        let start = self.start.as_ptr().cast();
        // SAFETY: locking a range of our own mapping changes no content.
        let _ = unsafe { rustix::mm::mlock(start, self.byte_len) };
        // SAFETY: leaving a range of our own mapping out of core files changes no content.
        let _ = unsafe { rustix::mm::madvise(start, self.byte_len, Advice::LinuxDontDump) };
    }

    /// Has a forked child find zeros.
    fn keep_from_children(&self) {
        let start = self.start.as_ptr().cast();
        // SAFETY: the mapping is private and anonymous, as this advice wants; a child sees zeros, which are initialised.
        let _ = unsafe { rustix::mm::madvise(start, self.byte_len, Advice::LinuxWipeOnFork) };
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: `mmap_anonymous` gave exactly this range, and whoever uses its memory borrows this page.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.byte_len) };
        debug_assert!(unmapped.is_ok(), "munmap of a whole mapping");
    }
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Page {}
// SAFETY: a shared reference gives out a pointer only; using it is the unsafe act of whoever does.
unsafe impl Sync for Page {}
