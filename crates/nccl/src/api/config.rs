//! How a communicator is to behave. How that looks in memory to one version of the library is the loader's business.

/// The configuration of a communicator. What is absent is left to the library; what a library is too old for is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommConfig {
    /// Whether calls wait until they are done rather than answer that they have begun. Never so for communicators of groups.
    pub blocking: bool,
    /// Thread blocks that form a cluster.
    pub cga_cluster_size: Option<i32>,
    /// The fewest thread blocks a kernel.
    pub min_ctas: Option<i32>,
    /// The most thread blocks a kernel.
    pub max_ctas: Option<i32>,
    /// The network plug-in, by name.
    pub net_name: Option<String>,
    /// Whether a child shares the resources of the communicator it is split from. Since 2.18.
    pub split_share: Option<bool>,
    /// The class of traffic on the network. Since 2.26.
    pub traffic_class: Option<i32>,
    /// What the library calls the communicator in its log. Since 2.27.
    pub name: Option<String>,
    /// Whether reductions in the network are used. Since 2.27.
    pub collnet: Option<bool>,
    /// What thread blocks are saved for: `NCCL_CTA_POLICY_*`. Since 2.27.
    pub cta_policy: Option<i32>,
    /// Whether a shrunk communicator shares the resources of the one it comes from. Since 2.27.
    pub shrink_share: Option<bool>,
    /// Thread blocks for NVLink SHARP. Since 2.27.
    pub nvls_ctas: Option<i32>,
    /// Channels a peer over the network. Since 2.28.
    pub channels_per_net_peer: Option<i32>,
    /// Whether NVLink is used centrally. Since 2.28.
    pub nvlink_central: Option<bool>,
}
