//! Configurations as each version of the library reads them, laid out by the C compiler on its side.

use phalanx_nccl::api::{CommConfig, Device, Nccl, Status};

use crate::Pair;
use crate::complete::full;

#[test]
fn every_version_reads_its_configuration() {
    let lengths = [(21_801, 48), (22_707, 72), (22_809, 80), (22_907, 88), (23_007, 96), (23_102, 112), (23_203, 120)];
    for (version, byte_len) in lengths {
        let pair = Pair::new(version);
        assert_eq!(pair.stub.ask("stub_config_len"), byte_len, "{version}");
        for (config, unset) in [(full(), 0), (CommConfig::default(), 1)] {
            let (status, comm) = pair.nccl.init(Device(0), 0, 1, &pair.id(), &config);
            assert_eq!(status, Status::SUCCESS, "{version}");
            reads(&pair, unset, version);
            assert_eq!(pair.nccl.split(comm, Some(0), 0, &config).0, Status::SUCCESS);
            reads(&pair, unset, version);
        }
    }
}

#[test]
fn a_version_that_is_newer_than_all_known_gets_the_newest_configuration() {
    let pair = Pair::new(24_105);
    let (status, _) = pair.nccl.init(Device(0), 0, 1, &pair.id(), &full());
    assert_eq!(status, Status::SUCCESS);
    // Its own is as long as that, but its version is another.
    assert_eq!(pair.stub.ask("stub_config_len"), 120);
    // SAFETY: the type of this function.
    let is: unsafe extern "C" fn(i32) -> i32 = unsafe { pair.stub.function("stub_config_is") };
    // SAFETY: any number will do.
    assert_eq!(unsafe { is(0) }, 0);
}

fn reads(pair: &Pair, unset: i32, version: u32) {
    // SAFETY: the type of this function.
    let is: unsafe extern "C" fn(i32) -> i32 = unsafe { pair.stub.function("stub_config_is") };
    // SAFETY: any number will do.
    assert_eq!(unsafe { is(unset) }, 1, "{version}");
}
