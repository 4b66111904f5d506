//! The system calls behind a segment on Linux: an anonymous file, its seals, its mapping. It knows nothing of content.

use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};
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
        Mapping::of(fd, 0..byte_len, MapFlags::SHARED)
    }

    /// Maps a range of a file that begins with a page, where there is room.
    fn of(fd: BorrowedFd<'_>, range: Range<usize>, flags: MapFlags) -> Result<Mapping, SegmentError> {
        let (access, byte_len, offset) = (ProtFlags::READ | ProtFlags::WRITE, range.len(), range.start as u64);
        // SAFETY: a null hint lets the kernel choose addresses that are in nobody's use.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), byte_len, access, flags, fd, offset) };
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
    /// does not come here, and what is written here stays here. After an error everything is still mapped, and may be shared still.
    pub(crate) fn part_with(&self, fd: BorrowedFd<'_>, range: Range<usize>) -> Result<(), SegmentError> {
        self.part_with_by(range, |pages| Mapping::of(fd, pages, MapFlags::PRIVATE))
    }

    /// The same with pages that are mapped elsewhere before they take the place of these: a call to map them here could fail after it has
    /// unmapped what is here. They are filled here only, so that nothing is lost that other threads write to these pages meanwhile.
    fn part_with_by(
        &self,
        range: Range<usize>,
        map: impl FnOnce(Range<usize>) -> Result<Mapping, SegmentError>,
    ) -> Result<(), SegmentError> {
        let page = rustix::param::page_size();
        let pages = range.start / page * page..range.end.next_multiple_of(page);
        assert!(range.start <= range.end && range.end <= self.byte_len);
        let (own, byte_len) = (map(pages.clone())?, pages.len());
        assert_eq!(own.byte_len, byte_len);
        // SAFETY: the range is of this mapping.
        let first = unsafe { self.start.add(pages.start) }.as_ptr();
        let (from, into) = (own.start.as_ptr().cast(), first.cast());
        // SAFETY: nobody has a reference to the pages that move. They are of the same part of the file, none of them written, and take the
        // place of whole pages of this mapping at once: a reference to these finds the same bytes there, mapped for as long.
        unsafe { rustix::mm::mremap_fixed(from, byte_len, byte_len, MremapFlags::MAYMOVE, into) }
            .map_err(failed("mremap"))?;
        // They are this mapping's now, and nothing is left where they were.
        mem::forget(own);
        // Until a page is written it is still that of the file.
        // SAFETY: the range is of this mapping, and what is in the pages stays.
        match unsafe { rustix::mm::madvise(first.cast(), byte_len, Advice::LinuxPopulateWrite) } {
            Err(Errno::INVAL) => {}
            populated => populated.map_err(failed("madvise"))?,
        }
        // An older system does not know that, and emulators say that it was done and do nothing.
        pages.step_by(page).for_each(|at| self.write_again(at));
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
    fn memory_stays_shared_where_the_system_has_no_pages_for_its_own() {
        let byte_len = 2 * rustix::param::page_size();
        let fd = create(byte_len).expect("memfd");
        let [ours, theirs] = [(); 2].map(|()| Mapping::new(fd.as_fd(), byte_len).expect("room"));
        byte_of(&theirs, 5).store(1, Ordering::Relaxed);
        let refused = ours.part_with_by(5..6, |pages| {
            assert_eq!((pages.start, pages.len()), (0, byte_len / 2), "whole pages");
            // Whatever the system does to a call that it refuses, it does not do it to these addresses.
            Err(failed("mmap")(Errno::NOMEM))
        });
        assert!(matches!(refused, Err(SegmentError::Os { call: "mmap", .. })), "{refused:?}");
        assert_eq!(byte_of(&ours, 5).swap(2, Ordering::Relaxed), 1);
        assert_eq!(byte_of(&theirs, 5).load(Ordering::Relaxed), 2);
    }

    fn byte_of(mapping: &Mapping, at: usize) -> &AtomicU8 {
        assert!(at < mapping.byte_len);
        // SAFETY: inside the mapping.
        let byte = unsafe { mapping.start.add(at) }.cast::<AtomicU8>();
        // SAFETY: as above; here nothing else has a reference to it.
        unsafe { byte.as_ref() }
    }

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
