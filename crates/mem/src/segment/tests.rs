//! Segments: seals, sizes, bounds and two mappings of the same memory.

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

use super::*;

#[test]
fn a_second_mapping_sees_writes() {
    let first = Segment::create(1000).expect("memfd");
    let second = Segment::open(copy_of(&first)).expect("sealed");
    assert_eq!(second.byte_len(), 1000);
    let mut bytes = [9; 5];
    second.copy_out(995, &mut bytes).expect("in range");
    assert_eq!(bytes, [0; 5]);
    first.copy_in(995, b"hello").expect("in range");
    second.copy_out(995, &mut bytes).expect("in range");
    assert_eq!(&bytes, b"hello");
}

#[test]
fn a_segment_is_left_out_of_core_files() {
    let segment = Segment::create_sparse(1 << 30, 1).expect("memfd");
    assert_left_out_of_core_files(&segment, 0);
}

#[test]
fn pages_of_its_own_have_what_was_there_and_are_left_out_of_core_files() {
    let page = rustix::param::page_size();
    let ours = Segment::create(3 * page).expect("memfd");
    let theirs = Segment::open(copy_of(&ours)).expect("sealed");
    theirs.copy_in(page, b"before").expect("in range");
    ours.mapping.part_with(ours.fd(), page + 3..page + 4).expect("memory");
    for offset in [0, page, 2 * page] {
        theirs.copy_in(offset, b"behind").expect("in range");
    }
    let seen = |segment: &Segment, offset| {
        let mut bytes = [0; 6];
        segment.copy_out(offset, &mut bytes).expect("in range");
        bytes
    };
    assert_eq!([0, page, 2 * page].map(|offset| seen(&ours, offset)), [*b"behind", *b"before", *b"behind"]);
    ours.copy_in(page, b"inside").expect("in range");
    assert_eq!((seen(&ours, page), seen(&theirs, page)), (*b"inside", *b"behind"));
    for offset in [0, page, 2 * page] {
        assert_left_out_of_core_files(&ours, offset);
    }
}

/// Of the pages that are mapped together from this offset on.
fn assert_left_out_of_core_files(segment: &Segment, offset: usize) {
    let address = format!("{:x}-", segment.mapping.start().as_ptr().addr() + offset);
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("the mappings of this process");
    let mut lines = maps.lines().skip_while(|line| !line.starts_with(&address));
    let flags = lines.find(|line| line.starts_with("VmFlags:")).expect("this mapping");
    assert!(flags.split(' ').any(|flag| flag == "dd"), "{flags}");
}

#[test]
fn the_length_is_sealed_and_exec_closes() {
    let segment = Segment::create(100).expect("memfd");
    assert_eq!(rustix::fs::ftruncate(segment.fd(), 50), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(segment.fd(), 5000), Err(Errno::PERM));
    assert_eq!(rustix::fs::fcntl_add_seals(segment.fd(), SealFlags::WRITE), Err(Errno::PERM));
    let flags = rustix::io::fcntl_getfd(segment.fd()).expect("open");
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}

#[test]
fn files_that_could_change_their_length_are_refused() {
    let unsealed = memfd(100, SealFlags::empty());
    assert!(matches!(Segment::open(unsealed), Err(SegmentError::Unsealed)));
    let may_shrink = memfd(100, SealFlags::GROW | SealFlags::SEAL);
    assert!(matches!(Segment::open(may_shrink), Err(SegmentError::Unsealed)));
    let ordinary = std::fs::File::open("Cargo.toml").expect("the manifest of this crate");
    assert!(matches!(Segment::open(ordinary.into()), Err(SegmentError::Unsealed)));
}

#[test]
fn empty_wrong_sized_and_read_only_files_are_refused() {
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    assert!(matches!(Segment::create(0), Err(SegmentError::Empty)));
    assert!(matches!(Segment::open(memfd(0, all)), Err(SegmentError::Empty)));
    assert!(matches!(Segment::open_sized(memfd(0, all), 0), Err(SegmentError::Empty)));
    let found = Segment::open_sized(memfd(99, all), 100).expect_err("wrong size");
    assert!(matches!(found, SegmentError::WrongSize { expected: 100, found: 99 }));
    assert_eq!(Segment::open_sized(memfd(99, all), 99).expect("agreed").byte_len(), 99);
    assert!(matches!(Segment::open(memfd(99, all | SealFlags::WRITE)), Err(SegmentError::Os { call: "mmap", .. })));
    assert!(matches!(Segment::create(usize::MAX), Err(SegmentError::Os { .. })));
}

#[test]
fn ranges_outside_are_refused() {
    let segment = Segment::create(20).expect("memfd");
    for (offset, byte_len) in [(0, 21), (20, 1), (21, 0), (usize::MAX, 1), (usize::MAX, usize::MAX)] {
        assert!(matches!(segment.range(offset, byte_len), Err(SegmentError::OutOfRange { .. })));
    }
    assert!(segment.copy_in(15, &[0; 6]).is_err());
    assert!(segment.copy_out(20, &mut []).is_ok());
}

#[test]
fn a_claimed_part_is_closed_to_copies_until_given_back() {
    let segment = Arc::new(Segment::create(512).expect("memfd"));
    let ring = Purpose::Ring { capacity: 64 };
    let claim = Claim::new(Arc::clone(&segment), 128, 128, ring, 0).expect("free");
    assert!(matches!(segment.copy_in(120, &[1; 9]), Err(SegmentError::InUse { offset: 120, byte_len: 9 })));
    assert!(matches!(segment.copy_out(255, &mut [1]), Err(SegmentError::InUse { .. })));
    assert!(segment.copy_in(0, &[1; 128]).is_ok());
    drop(claim);
    assert!(segment.copy_in(120, &[1; 9]).is_ok());
    assert!(Claim::new(segment, 128, 128, ring, 0).is_ok());
}

#[test]
fn racing_copies_of_neighbours_lose_nothing() {
    let segment = Segment::create(64).expect("memfd");
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let segment = &segment;
            // Three bytes each: neighbours share words.
            scope.spawn(move || {
                for round in 0..1000 {
                    let value = [thread.wrapping_mul(50).wrapping_add(round as u8); 3];
                    segment.copy_in(usize::from(thread) * 3, &value).expect("in range");
                    let mut back = [0; 3];
                    segment.copy_out(usize::from(thread) * 3, &mut back).expect("in range");
                    assert_eq!(back, value);
                }
            });
        }
    });
}

fn copy_of(segment: &Segment) -> OwnedFd {
    segment.fd().try_clone_to_owned().expect("a free descriptor")
}

fn memfd(byte_len: u64, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memfd");
    rustix::fs::ftruncate(&fd, byte_len).expect("sized");
    rustix::fs::fcntl_add_seals(&fd, seals).expect("sealed");
    fd
}
