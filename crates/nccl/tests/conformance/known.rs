//! Memory that the communicator knows: of the library's making, registered, and as windows.

use phalanx_core::{DType, ErrorKind, Op, ReduceOp};
use phalanx_nccl::api::{Cuda, Version};
use phalanx_nccl::conformance::elements;
use phalanx_nccl::group::{DeviceBuffer, NcclOptions};
use phalanx_nccl::sim::{Fault, Simulation};

use crate::seats::{DEVICE, clean, group, seeds};
use crate::setting::{Member, run};

/// Sums ones of all ranks in some memory.
fn sum(member: &Member, memory: &DeviceBuffer<phalanx_nccl::sim::SimCuda>) -> Vec<u8> {
    let ones = member.upload(&elements(DType::I32, &[1; 4]));
    member.cuda.copy(memory.span(), ones.span(), member.stream).expect("copied");
    let op = Op::AllReduce { count: 4, reduce: ReduceOp::Sum };
    let work = member.group.submit(op, DType::I32, None, (None, memory), member.stream).expect("submitted");
    work.fence(member.stream).expect("on its stream");
    let bytes = member.download(memory);
    work.wait().expect("summed");
    bytes
}

#[test]
fn memory_is_made_registered_used_and_forgotten() {
    for (seed, size) in seeds(4).flat_map(|seed| (1..=4).map(move |size| (seed, size))) {
        let ends = run(size, seed, |member| {
            let expected = elements(DType::I32, &[member.size as i64; 4]);
            // Of the library's making, and of the driver's.
            let own = member.group.allocate(16).expect("memory");
            let other = DeviceBuffer::new(&member.cuda, DEVICE, 16).expect("memory");
            let registered = [&own, &other].map(|memory| member.group.register(memory).expect("registered"));
            let window = member.group.register_window(&own, true).expect("opened");
            let sums = [window.memory(), registered[1].memory()].map(|memory| sum(member, memory));
            // What is under way when the memory is parted with goes on to its end.
            let op = Op::AllReduce { count: 4, reduce: ReduceOp::Max };
            let work = member.group.submit(op, DType::I32, None, (None, &own), member.stream).expect("submitted");
            drop((own, other, registered, window));
            work.wait().expect("done");
            sums.iter().all(|bytes| *bytes == expected)
        });
        assert!(ends.iter().all(|is_right| *is_right), "seed {seed}: {ends:?}");
    }
}

#[test]
fn what_the_library_is_too_old_for_is_refused_and_the_group_goes_on() {
    for (version, expected) in [((2, 18, 5), [true, true, true]), ((2, 19, 3), [false, false, true])] {
        let version = Version::new(version.0, version.1, version.2);
        let outcome = Simulation::new(2, 1).version(version).run(|rank| {
            let group = group(&rank, "group", NcclOptions::default()).expect("a group");
            let memory = DeviceBuffer::new(&rank.cuda, DEVICE, 16).expect("memory");
            let refused =
                [group.allocate(16).err(), group.register(&memory).err(), group.register_window(&memory, false).err()];
            group.group().barrier().expect("the group goes on");
            let kinds = refused.each_ref().map(|error| error.as_ref().map(|error| error.kind()));
            (kinds, refused[2].as_ref().map(ToString::to_string))
        });
        for (kinds, words) in outcome.results.iter().flatten() {
            assert_eq!(kinds.map(|kind| kind == Some(ErrorKind::Usage)), expected);
            let told = format!("register_window: library is NCCL {version}, must be 2.27.0 or later");
            assert_eq!(words.as_deref(), Some(&told[..]));
        }
        clean(&outcome, 1);
    }
}

/// Of other memory, and of one that begins within a page, the communicator would end.
#[test]
fn only_memory_of_the_librarys_own_from_a_page_on_is_asked_to_be_a_window() {
    for seed in seeds(3) {
        run(2, seed, |member| {
            let own = member.group.allocate(3 * 4096).expect("memory");
            let other = DeviceBuffer::new(&member.cuda, DEVICE, 4096).expect("memory");
            let within = own.part(16, 4096).expect("a part");
            let refused = [&other, &within].map(|memory| member.group.register_window(memory, false).err());
            let words = [
                "register_window: memory is other memory, must be of the library's making: DeviceGroup::allocate",
                "register_window: memory is 16 bytes into its allocation, must begin at a multiple of 4096 bytes of it",
            ];
            for (error, words) in refused.into_iter().zip(words) {
                let error = error.expect("a refusal");
                assert_eq!((error.kind(), error.to_string()), (ErrorKind::Usage, words.to_owned()));
            }
            let second = own.part(4096, 4096).expect("a part");
            let window = member.group.register_window(&second, true).expect("the group goes on");
            assert!(window.is_window());
            assert_eq!(sum(member, &second.part(0, 16).expect("a part")), elements(DType::I32, &[2; 4]));
        });
    }
}

#[test]
fn a_window_that_the_library_does_not_open_is_told_and_its_memory_is_moved_as_any_other() {
    let job = (0..2).fold(Simulation::new(2, 1), |job, rank| job.fault(rank, Fault::OpensNoWindows));
    let outcome = job.run(|rank| {
        let group = group(&rank, "group", NcclOptions::default()).expect("a group");
        let memory = group.allocate(4096).expect("memory");
        let window = group.register_window(&memory, true).expect("none was opened, which is well");
        let is_window = window.is_window();
        drop(window);
        group.group().barrier().expect("the group goes on");
        is_window
    });
    assert_eq!(outcome.results, [Some(false), Some(false)]);
    clean(&outcome, 1);
}

#[test]
fn windows_that_differ_are_an_error_everywhere() {
    let outcome = Simulation::new(3, 2).run(|rank| {
        let group = group(&rank, "group", NcclOptions::default()).expect("a group");
        let memory = group.allocate(16 + 16 * rank.rank).expect("memory");
        group.register_window(&memory, false).expect_err("they differ").kind()
    });
    let kinds: Vec<ErrorKind> = outcome.results.iter().copied().flatten().collect();
    assert!(kinds.len() == 3 && kinds.iter().all(|kind| matches!(kind, ErrorKind::Device | ErrorKind::Aborted)));
    clean(&outcome, 2);
}
