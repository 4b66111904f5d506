//! The ranks among whom a model is divided, and those that hold the same part of it. It makes no groups.

use phalanx_core::{Error, Group, Result};

/// The groups that a sharded model works with.
#[derive(Clone, Debug)]
#[must_use]
pub struct Groups {
    pub(crate) shard: Group,
    pub(crate) replicate: Option<Group>,
    pub(crate) smaller: Option<Group>,
}

impl Groups {
    /// One group, each rank of which holds a part.
    pub fn new(shard: Group) -> Groups {
        Groups { shard, replicate: None, smaller: None }
    }

    /// The ranks that hold the same part as this one, in the other replicas of the model.
    pub fn replicate(mut self, group: Group) -> Groups {
        self.replicate = Some(group);
        self
    }

    /// The part of the shard group among whom units are divided between forward and backward, where the policy says
    /// [`Reshard::Smaller`](crate::Reshard::Smaller): ranks of one host, say.
    pub fn after_forward(mut self, group: Group) -> Groups {
        self.smaller = Some(group);
        self
    }

    /// The group among whose ranks the model is divided.
    pub fn shard(&self) -> &Group {
        &self.shard
    }

    /// The group of the replicas, where there are several.
    pub fn replicas(&self) -> Option<&Group> {
        self.replicate.as_ref()
    }

    /// How many ranks bring gradients.
    pub fn data_parallel_size(&self) -> usize {
        self.shard.size() * self.replicate.as_ref().map_or(1, Group::size)
    }

    pub(crate) fn check(&self) -> Result<()> {
        match &self.smaller {
            Some(smaller) if !self.shard.size().is_multiple_of(smaller.size()) => {
                let expected = format!("must divide the {} ranks of the shard group", self.shard.size());
                Err(Error::usage("Sharded::new", "after_forward", format!("{} ranks", smaller.size()), expected))
            }
            _ => Ok(()),
        }
    }
}

impl From<Group> for Groups {
    fn from(shard: Group) -> Groups {
        Groups::new(shard)
    }
}
