//! What must come before what between streams, and between them and the host: each place where the runner waits has a name here.

/// Something that waits for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Edge {
    /// A gather's memory is filled after the unit before was copied out of it.
    FillAfterCopyOut,
    /// Shards are copied in after the optimizer has written them.
    CopyInAfterStep,
    /// The gather begins after the copy into its memory.
    GatherAfterCopyIn,
    /// Full parameters are copied out after the gather.
    CopyOutAfterGather,
    /// A part among the smaller group is copied in after it was kept.
    CopyInAfterNarrow,
    /// The memory of a part among the smaller group is written again after the last gather from it.
    NarrowAfterCopyIn,
    /// Gradients are written to rows after what was reduced there before was taken.
    RowsAfterTake,
    /// The reduction begins after the gradients were written to its rows.
    ReduceAfterRows,
    /// What was reduced is taken after the reduction.
    TakeAfterReduce,
    /// Replicas join after the reduction among shards.
    JoinAfterReduce,
    /// What replicas joined is taken after that.
    TakeAfterJoin,
    /// A gradient's memory is written again after the optimizer has read it.
    TakeAfterStep,
    /// The optimizer begins after the gradients were taken.
    StepAfterTake,
    /// The host reads a gradient after its copy has come.
    HostReadsAfterCopy,
    /// The host writes a shard after the copy from it has gone.
    HostWritesAfterCopy,
    /// What ranks bring to a norm is gathered after it was measured.
    JoinAfterMeasure,
    /// The norm is worked out after that was gathered.
    NormAfterJoin,
    /// Gradients are added to after they were measured and multiplied.
    TakeAfterClip,
    /// The host reads a norm after its copy has come.
    HostReadsAfterNorm,
    /// Shards are written inside backward after they were copied in.
    StepAfterCopyIn,
}

impl Edge {
    /// Every edge.
    pub const ALL: [Edge; 20] = [
        Edge::FillAfterCopyOut,
        Edge::CopyInAfterStep,
        Edge::GatherAfterCopyIn,
        Edge::CopyOutAfterGather,
        Edge::CopyInAfterNarrow,
        Edge::NarrowAfterCopyIn,
        Edge::RowsAfterTake,
        Edge::ReduceAfterRows,
        Edge::TakeAfterReduce,
        Edge::JoinAfterReduce,
        Edge::TakeAfterJoin,
        Edge::TakeAfterStep,
        Edge::StepAfterTake,
        Edge::HostReadsAfterCopy,
        Edge::HostWritesAfterCopy,
        Edge::JoinAfterMeasure,
        Edge::NormAfterJoin,
        Edge::TakeAfterClip,
        Edge::HostReadsAfterNorm,
        Edge::StepAfterCopyIn,
    ];
}

/// A mistake that tests plant.
#[cfg(feature = "mistakes")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mistake {
    /// Nothing waits where this edge is.
    Without(Edge),
    /// Full parameters are copied out on the stream that shards are copied in on.
    CopyOutOnCopyIn,
}
