//! The system calls behind a segment on Linux: an anonymous file, its seals, its mapping. It knows nothing of content.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

use crate::SegmentError;

/// A new file of `byte_len` zero bytes whose length can never change.
pub(crate) fn create(byte_len: usize) -> Result<OwnedFd, SegmentError> {
    create_sparse(byte_len, byte_len)
}

/// The same with pages for its first bytes only.
pub(crate) fn create_sparse(byte_len: usize, reserved: usize) -> Result<OwnedFd, SegmentError> {
    if let Some(limit) = getrlimit(Resource::Fsize).current.filter(|limit| *limit < byte_len as u64) {
        return Err(SegmentError::Limited { byte_len, limit });
    }
    let fd = anonymous_file().map_err(failed("memfd_create"))?;
    rustix::fs::ftruncate(&fd, byte_len as u64).map_err(failed("ftruncate"))?;
    reserve(fd.as_fd(), 0..reserved)?;
    rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(failed("fcntl(F_ADD_SEALS)"))?;
    Ok(fd)
}

/// The length of a file from elsewhere, once it is known that it can never change.
pub(crate) fn sealed_byte_len(fd: BorrowedFd<'_>) -> Result<usize, SegmentError> {
    // Anything but a memfd or its like refuses the question with EINVAL, and has no seals.
    let seals = match rustix::fs::fcntl_get_seals(fd) {
        Err(Errno::INVAL) => SealFlags::empty(),
        answer => answer.map_err(failed("fcntl(F_GET_SEALS)"))?,
    };
    if !seals.contains(SEALS) {
        return Err(SegmentError::Unsealed);
    }
    let stat = rustix::fs::fstat(fd).map_err(failed("fstat"))?;
    usize::try_from(stat.st_size).map_err(|_| SegmentError::Empty)
}

/// Memory mapped from a file, unmapped on drop.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    byte_len: usize,
}

impl Mapping {
    /// Maps the whole of a sealed file of `byte_len` bytes, which is not zero, to read and write.
    pub(crate) fn new(fd: BorrowedFd<'_>, byte_len: usize) -> Result<Mapping, SegmentError> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null hint lets the kernel choose addresses that are in nobody's use.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), byte_len, access, MapFlags::SHARED, fd, 0) };
        let start = start.map_err(failed("mmap"))?;
        let start = NonNull::new(start.cast()).ok_or_else(|| failed("mmap")(Errno::FAULT))?;
        let mapping = Mapping { start, byte_len };
        mapping.keep_from_core_files();
        Ok(mapping)
    }

    /// A process that crashes ends when its core file is written. With all that its peers have and the room of their heaps, of which
    /// holes take memory and room on the disk as well, that would be minutes in which nobody knows that it is dead.
    fn keep_from_core_files(&self) {
        // SAFETY: leaving a range of our own mapping out of core files changes no content.
        let _ = unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.byte_len, Advice::LinuxDontDump) };
    }

    /// The first byte, at the start of a page. All pages up to the one of the last byte can be read and written.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Maps the pages of the first bytes now, so that no access waits for that. Kernels before 5.14 do not, and then each
    /// page waits once.
    pub(crate) fn populate(&self, byte_len: usize) {
        let byte_len = byte_len.min(self.byte_len);
        // SAFETY: the range is of this mapping, and what is in it stays.
        let _ = unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), byte_len, Advice::LinuxPopulateWrite) };
    }

    /// Gives this process pages of its own for a range of the file, with what is in them: what is written to the file from then on
    /// does not come here, and what is written here stays here.
    pub(crate) fn part_with(&self, fd: BorrowedFd<'_>, range: Range<usize>) -> Result<(), SegmentError> {
        let page = rustix::param::page_size();
        let (start, end) = (range.start / page * page, range.end.next_multiple_of(page));
        assert!(range.start <= range.end && range.end <= self.byte_len);
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: the range is of this mapping.
        let first = unsafe { self.start.add(start) };
        // SAFETY: whole pages of this mapping are replaced at once by pages of the same content, which stay for as long.
        unsafe { rustix::mm::mmap(first.as_ptr().cast(), end - start, access, flags, fd, start as u64) }
            .map_err(failed("mmap"))?;
        // Until a page is written it is still that of the file.
        // SAFETY: as above, and what is in the pages stays.
        match unsafe { rustix::mm::madvise(first.as_ptr().cast(), end - start, Advice::LinuxPopulateWrite) } {
            Err(Errno::INVAL) => (start..end).step_by(page).for_each(|at| self.write_again(at)),
            populated => populated.map_err(failed("madvise"))?,
        }
        Ok(())
    }

    /// Writes to the byte there what is in it.
    fn write_again(&self, at: usize) {
        // SAFETY: inside the mapping.
        let byte = unsafe { self.start.add(at) }.cast::<AtomicU8>();
        // SAFETY: as above; nothing is changed, whoever may write it meanwhile.
        let byte = unsafe { byte.as_ref() };
        let mut found = byte.load(Ordering::Relaxed);
        while let Err(other) = byte.compare_exchange(found, found, Ordering::Relaxed, Ordering::Relaxed) {
            found = other;
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `mmap` gave exactly this range, and whoever uses its memory borrows or shares this mapping.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.byte_len) };
        debug_assert!(unmapped.is_ok(), "munmap of a whole mapping");
    }
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives out a pointer only; using it is the unsafe act of whoever does.
unsafe impl Sync for Mapping {}

/// Kernels before 6.3 do not know the flag, and some later ones refuse a memfd without it.
fn anonymous_file() -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(NAME, flags),
        created => created,
    }
}

/// Takes the pages now: a page that cannot be had at first touch would end the process by a signal. Where some cannot be had, those of
/// the whole range are given back.
pub(crate) fn reserve(fd: BorrowedFd<'_>, range: Range<usize>) -> Result<(), SegmentError> {
    let call = |flags, range: Range<usize>| rustix::fs::fallocate(fd, flags, range.start as u64, range.len() as u64);
    reserve_by(range.clone(), |piece| call(FallocateFlags::empty(), piece)).map_err(|refused| {
        // Nothing is in them yet, and what is not given back now is with the file.
        let _ = call(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, range);
        failed("fallocate")(refused)
    })
}

/// In pieces, each of which is had between two signals of a timer: on some kernels a call that a signal interrupts has taken nothing.
fn reserve_by(range: Range<usize>, mut allocate: impl FnMut(Range<usize>) -> Result<(), Errno>) -> Result<(), Errno> {
    for start in range.clone().step_by(PIECE) {
        let piece = start..range.end.min(start.saturating_add(PIECE));
        match rustix::io::retry_on_intr(|| allocate(piece.clone())) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
            reserved => reserved?,
        }
    }
    Ok(())
}

fn failed(call: &'static str) -> impl FnOnce(Errno) -> SegmentError {
    move |errno| SegmentError::Os { call, source: io::Error::from(errno) }
}

const NAME: &str = "phalanx";
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
const PIECE: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_had_though_signals_undo_long_calls() {
        let (mut taken, mut is_calm) = (vec![], true);
        let had = reserve_by(5..(3 << 20) + 7, |piece| {
            is_calm = !is_calm;
            if piece.len() > 1 << 20 || is_calm {
                return Err(Errno::INTR);
            }
            taken.push(piece);
            // One that goes on for ever is no better.
            if taken.len() > 4 { Err(Errno::NOSPC) } else { Ok(()) }
        });
        assert_eq!(had, Ok(()));
        assert!(taken.windows(2).all(|pair| pair[0].end == pair[1].start), "{taken:?}");
        assert_eq!((taken[0].start, taken.last().map(|piece| piece.end)), (5, Some((3 << 20) + 7)));
        assert_eq!(reserve_by(0..1, |_| Err(Errno::NOSPC)), Err(Errno::NOSPC));
        assert_eq!(reserve_by(0..1, |_| Err(Errno::NOSYS)), Ok(()));
        assert_eq!(reserve_by(1..1, |_| Err(Errno::NOSPC)), Ok(()));
    }
}
