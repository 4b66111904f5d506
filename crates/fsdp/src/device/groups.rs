//! The groups that a sharded model on devices works with, and what its parts have in common.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use phalanx_core::{Error, Result};
use phalanx_nccl::api::{Cuda, Nccl, Process};
use phalanx_nccl::group::DeviceGroup;

use super::deck::Deck;
use super::hook::Hook;
use super::pool::Pool;
use crate::groups::Groups;

/// The groups that a sharded model on devices works with. See [`Groups`] for what each is for.
#[must_use]
pub struct DeviceGroups<N: Nccl, C: Cuda, P: Process> {
    pub(super) shard: Arc<DeviceGroup<N, C, P>>,
    pub(super) reduce: Arc<DeviceGroup<N, C, P>>,
    pub(super) replicate: Option<Arc<DeviceGroup<N, C, P>>>,
    pub(super) smaller: Option<Arc<DeviceGroup<N, C, P>>>,
}

impl<N: Nccl, C: Cuda, P: Process> DeviceGroups<N, C, P> {
    /// One group, each rank of which holds a part.
    pub fn new(shard: impl Into<Arc<DeviceGroup<N, C, P>>>) -> DeviceGroups<N, C, P> {
        let shard = shard.into();
        DeviceGroups { reduce: Arc::clone(&shard), shard, replicate: None, smaller: None }
    }

    /// The same ranks with a communicator of their own for reductions, which then wait for no gather where the device has room for the kernels of
    /// two communicators.
    pub fn reductions(mut self, group: impl Into<Arc<DeviceGroup<N, C, P>>>) -> DeviceGroups<N, C, P> {
        self.reduce = group.into();
        self
    }

    /// The ranks that hold the same part as this one, in the other replicas of the model.
    pub fn replicate(mut self, group: impl Into<Arc<DeviceGroup<N, C, P>>>) -> DeviceGroups<N, C, P> {
        self.replicate = Some(group.into());
        self
    }

    /// The part of the shard group among whom units are divided between forward and backward.
    pub fn after_forward(mut self, group: impl Into<Arc<DeviceGroup<N, C, P>>>) -> DeviceGroups<N, C, P> {
        self.smaller = Some(group.into());
        self
    }

    /// Leaves those that nobody else has, and waits for the end of each, at most so long: see [`DeviceGroup::leave`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn leave(self, timeout: Duration) -> Result<()> {
        let DeviceGroups { shard, reduce, replicate, smaller } = self;
        let all = [Some(reduce), Some(shard), replicate, smaller].into_iter().flatten();
        let own: Vec<DeviceGroup<N, C, P>> = all.filter_map(Arc::into_inner).collect();
        // One that does not end keeps none of the others.
        let ends: Vec<Result<()>> = own.into_iter().map(|group| group.leave(timeout)).collect();
        ends.into_iter().collect()
    }

    /// This rank among those that hold a part each.
    pub(super) fn rank(&self) -> usize {
        self.shard.group().rank()
    }

    /// That a part which was reduced is that of the rank which holds it.
    pub(super) fn check(&self) -> Result<()> {
        let [reduce, shard] = [&self.reduce, &self.shard].map(|group| (group.group().rank(), group.group().size()));
        if reduce == shard {
            return Ok(());
        }
        let told = |(rank, size): (usize, usize)| format!("rank {rank} of {size}");
        let expected = format!("must be {}, as among the shards", told(shard));
        Err(Error::usage("DeviceSharded::new", "reductions", told(reduce), expected))
    }

    /// The same groups over memory of the host.
    pub(super) fn of_host(&self) -> Groups {
        let mut groups = Groups::new(self.shard.group().clone());
        if let Some(replicate) = &self.replicate {
            groups = groups.replicate(replicate.group().clone());
        }
        match &self.smaller {
            Some(smaller) => groups.after_forward(smaller.group().clone()),
            None => groups,
        }
    }
}

impl<N: Nccl, C: Cuda, P: Process> fmt::Debug for DeviceGroups<N, C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceGroups({:?})", self.shard)
    }
}

/// What everything that is done for a unit is done with.
pub(super) struct Means<N: Nccl, C: Cuda, P: Process> {
    pub(super) deck: Deck<N, C, P>,
    pub(super) pool: Pool<C>,
    pub(super) groups: DeviceGroups<N, C, P>,
    pub(super) divisor: Option<f64>,
    /// How gradients travel, where not by the engine's own reduction.
    pub(super) hook: Option<Hook>,
}
