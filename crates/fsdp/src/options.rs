//! How a model is sharded: what is kept, in which types it travels and what is fetched ahead. Ranks must agree on all of it.

use phalanx_core::DType;

/// What becomes of a unit's full parameters between its forward and its backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reshard {
    /// They are freed, and gathered again: the least memory.
    #[default]
    Yes,
    /// They are kept: a gather less.
    No,
    /// Each rank keeps its part of a division among a smaller group, from which they are gathered again: see
    /// [`Groups::after_forward`](crate::Groups::after_forward).
    Smaller,
}

/// Where shards and their gradients live while they are not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Offload {
    /// Where the model is computed.
    #[default]
    No,
    /// In the host's memory. The engine on the host has no other, so that nothing changes: a program may ask for it whatever it runs on.
    /// The one on devices keeps them in pinned memory.
    Host,
}

/// How units are gathered and reduced.
#[derive(Clone, Debug)]
#[must_use]
pub struct Policy {
    pub(crate) reshard: Reshard,
    pub(crate) compute: Option<DType>,
    pub(crate) reduce: Option<DType>,
    pub(crate) output: Option<DType>,
    pub(crate) forward_prefetch: usize,
    pub(crate) backward_prefetch: usize,
    pub(crate) offload: Offload,
    pub(crate) trace: bool,
}

impl Default for Policy {
    /// Freed after forward, everything in the parameters' own type, one unit fetched ahead in both directions, no trace.
    fn default() -> Policy {
        Policy {
            reshard: Reshard::Yes,
            compute: None,
            reduce: None,
            output: None,
            forward_prefetch: 1,
            backward_prefetch: 1,
            offload: Offload::No,
            trace: false,
        }
    }
}

impl Policy {
    /// What becomes of units after their forward, unless [they say otherwise](crate::UnitSpec::reshard_after_forward).
    pub fn reshard_after_forward(mut self, reshard: Reshard) -> Policy {
        self.reshard = reshard;
        self
    }

    /// What was said of units after their forward.
    pub fn reshard(&self) -> Reshard {
        self.reshard
    }

    /// The type in which parameters are gathered and computed with, unless [their unit](crate::UnitSpec::compute) says otherwise; their own
    /// unless set.
    pub fn compute(mut self, dtype: DType) -> Policy {
        self.compute = Some(dtype);
        self
    }

    /// The type in which gradients are reduced, and summed up before that, unless [their unit](crate::UnitSpec::reduce) says otherwise; the one
    /// in which parameters are computed with unless set.
    pub fn reduce(mut self, dtype: DType) -> Policy {
        self.reduce = Some(dtype);
        self
    }

    /// The type that the model's outputs are cast to, for adapters: the engine sees no output.
    pub fn output(mut self, dtype: DType) -> Policy {
        self.output = Some(dtype);
        self
    }

    /// The type that was set for parameters in computation.
    pub fn compute_dtype(&self) -> Option<DType> {
        self.compute
    }

    /// The type that was set for reductions.
    pub fn reduce_dtype(&self) -> Option<DType> {
        self.reduce
    }

    /// The type that was set for outputs.
    pub fn output_dtype(&self) -> Option<DType> {
        self.output
    }

    /// How many units are gathered ahead during forward. Each costs the memory of one unit.
    pub fn forward_prefetch(mut self, units: usize) -> Policy {
        self.forward_prefetch = units;
        self
    }

    /// How many units are gathered ahead during backward. Each costs the memory of one unit.
    pub fn backward_prefetch(mut self, units: usize) -> Policy {
        self.backward_prefetch = units;
        self
    }

    /// Where shards and gradients live, for adapters to devices with memory of their own.
    pub fn offload(mut self, offload: Offload) -> Policy {
        self.offload = offload;
        self
    }

    /// Where they were told to live.
    pub fn chosen_offload(&self) -> Offload {
        self.offload
    }

    /// Whether events and actions are written down until they are [taken](crate::Sharded::take_trace).
    pub fn trace(mut self, trace: bool) -> Policy {
        self.trace = trace;
        self
    }
}
