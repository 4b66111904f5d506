//! Configurations as each version of the library reads them, laid out by the C compiler on its side.

use phalanx_nccl::api::{CommConfig, Device, Nccl, Status};

use crate::Pair;

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

/// What the stub knows.
pub(crate) fn full() -> CommConfig {
    CommConfig {
        blocking: true,
        cga_cluster_size: Some(2),
        min_ctas: Some(3),
        max_ctas: Some(4),
        net_name: Some("Socket".into()),
        split_share: Some(true),
        traffic_class: Some(5),
        name: Some("mesh".into()),
        collnet: Some(false),
        cta_policy: Some(6),
        shrink_share: Some(true),
        nvls_ctas: Some(7),
        channels_per_net_peer: Some(8),
        nvlink_central: Some(true),
    }
}
