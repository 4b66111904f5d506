//! The words of the machine: what a model comes to, what is done for it, and how far ahead is looked. They decide nothing.

/// What a model has come to. Units are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// A unit's parameters are about to be used for the first time in forward.
    BeforeForward(usize),
    /// They are not used any more until backward.
    AfterForward(usize),
    /// They are about to be used in backward.
    BeforeBackward(usize),
    /// Its gradients are there. `reduces` says that they are to be reduced now.
    AfterBackward {
        /// The unit.
        unit: usize,
        /// Whether there are gradients, and they are not just summed up on this rank.
        reduces: bool,
    },
    /// Its full parameters were copied by whoever uses them.
    Copied(usize),
    /// Backward is over.
    BackwardEnd,
    /// It was over without a unit of which gradients wait: they are reduced now.
    Skipped(usize),
    /// A unit is wanted in full, until it is resharded.
    Unshard(usize),
    /// It is not wanted any more.
    Reshard(usize),
    /// Its shards were changed, so that what is gathered is of no use, unless somebody is in it.
    Changed(usize),
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Begin to gather a unit.
    Gather(usize),
    /// Begin to gather it among the smaller group.
    GatherNarrow(usize),
    /// Wait for the gather.
    AwaitGather(usize),
    /// Keep this rank's part in the smaller group, and free the rest.
    Narrow(usize),
    /// Free a unit's full parameters, or this rank's part of them in the smaller group.
    Release(usize),
    /// Begin to reduce and scatter its gradients.
    ReduceScatter(usize),
    /// Wait for that.
    AwaitReduceScatter(usize),
    /// Keep the reduced part, and add it to the next one.
    KeepPartial(usize),
    /// Begin to reduce the part among the replicas.
    AllReduce(usize),
    /// Wait for that.
    AwaitAllReduce(usize),
    /// Add what was reduced to the gradients of the shards.
    Accumulate(usize),
}

/// How far ahead is looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Units in forward.
    pub forward: usize,
    /// Units in backward.
    pub backward: usize,
}

/// What may be changed between micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether a backward follows.
    pub trains: bool,
    /// Whether replicas come together, or their parts are kept as they are.
    pub all_reduces: bool,
    /// Whether units are freed after backward.
    pub reshards_after_backward: bool,
    /// Whether the end of backward waits for all reductions, and reduces what waits of units that it did not come to.
    pub is_last_backward: bool,
    /// Whether each unit is copied as soon as it is there. What is fetched ahead then begins after that, in the memory that becomes free.
    pub copies: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            trains: true,
            all_reduces: true,
            reshards_after_backward: true,
            is_last_backward: true,
            copies: false,
        }
    }
}
