//! A configuration in which nothing is left out, as the stub knows it. The tests of its image in memory read it too.

use super::CommConfig;

/// Every field with a value of its own.
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
