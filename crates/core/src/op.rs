//! Operations as numbers: what every rank must agree on, and how long its buffers must be. No data, no algorithm.

use std::fmt;
use std::sync::Arc;

use crate::reduce::ReduceOp;

/// One operation of a group, described by numbers alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Every rank gets the reduction of all ranks' elements.
    AllReduce {
        /// Elements a rank.
        count: usize,
        /// How elements are joined.
        reduce: ReduceOp,
    },
    /// `root` gets the reduction of all ranks' elements.
    Reduce {
        /// Elements a rank.
        count: usize,
        /// How elements are joined.
        reduce: ReduceOp,
        /// The rank that gets the result.
        root: usize,
    },
    /// Every rank gets `root`'s elements.
    Broadcast {
        /// Elements.
        count: usize,
        /// The rank that gives them.
        root: usize,
    },
    /// Every rank gets all ranks' elements, in rank order.
    AllGather {
        /// Elements that each rank gives.
        counts: Counts,
    },
    /// Rank `i` gets the `i`-th slice of the reduction of all ranks' elements.
    ReduceScatter {
        /// Elements that each rank gets.
        counts: Counts,
        /// How elements are joined.
        reduce: ReduceOp,
    },
    /// Rank `i` gives its `j`-th slice to rank `j`.
    AllToAll {
        /// Elements that this rank gives to each rank.
        give: Counts,
        /// Elements that this rank takes from each rank.
        take: Counts,
    },
    /// `root` gets all ranks' elements, in rank order.
    Gather {
        /// Elements that each rank gives.
        counts: Counts,
        /// The rank that gets them.
        root: usize,
    },
    /// Rank `i` gets the `i`-th slice of `root`'s elements.
    Scatter {
        /// Elements that each rank gets.
        counts: Counts,
        /// The rank that gives them.
        root: usize,
    },
    /// No rank leaves before every rank has come.
    Barrier,
    /// Elements go to one rank, which receives them under the same tag.
    Send {
        /// Elements.
        count: usize,
        /// The receiver.
        to: usize,
        /// What tells messages between the same two ranks apart.
        tag: u32,
    },
    /// Elements come from one rank, or from whichever sends first.
    Recv {
        /// Elements.
        count: usize,
        /// The sender; any when absent.
        from: Option<usize>,
        /// What tells messages between the same two ranks apart.
        tag: u32,
    },
}

/// How many elements each rank has in a sliced buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Counts {
    /// The same number for every rank.
    Even(usize),
    /// A number for each rank.
    Uneven(Arc<[usize]>),
}

/// The name of an operation, without its numbers. The values are part of the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum OpKind {
    /// See [`Op::AllReduce`].
    AllReduce = 1,
    /// See [`Op::Reduce`].
    Reduce = 2,
    /// See [`Op::Broadcast`].
    Broadcast = 3,
    /// See [`Op::AllGather`].
    AllGather = 4,
    /// See [`Op::ReduceScatter`].
    ReduceScatter = 5,
    /// See [`Op::AllToAll`].
    AllToAll = 6,
    /// See [`Op::Gather`].
    Gather = 7,
    /// See [`Op::Scatter`].
    Scatter = 8,
    /// See [`Op::Barrier`].
    Barrier = 9,
    /// See [`Op::Send`].
    Send = 10,
    /// See [`Op::Recv`].
    Recv = 11,
}

/// Elements that an operation needs in each buffer of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Elements this rank contributes.
    pub input: usize,
    /// Elements this rank gets.
    pub output: usize,
}

impl Op {
    /// The name without the numbers.
    pub fn kind(&self) -> OpKind {
        match self {
            Op::AllReduce { .. } => OpKind::AllReduce,
            Op::Reduce { .. } => OpKind::Reduce,
            Op::Broadcast { .. } => OpKind::Broadcast,
            Op::AllGather { .. } => OpKind::AllGather,
            Op::ReduceScatter { .. } => OpKind::ReduceScatter,
            Op::AllToAll { .. } => OpKind::AllToAll,
            Op::Gather { .. } => OpKind::Gather,
            Op::Scatter { .. } => OpKind::Scatter,
            Op::Barrier => OpKind::Barrier,
            Op::Send { .. } => OpKind::Send,
            Op::Recv { .. } => OpKind::Recv,
        }
    }

    /// How elements are joined, for the operations that join them.
    pub fn reduce(&self) -> Option<ReduceOp> {
        match self {
            Op::AllReduce { reduce, .. } | Op::Reduce { reduce, .. } | Op::ReduceScatter { reduce, .. } => {
                Some(*reduce)
            }
            _ => None,
        }
    }

    /// The rank that gives or gets alone, for the operations that have one.
    pub fn root(&self) -> Option<usize> {
        match self {
            Op::Reduce { root, .. } | Op::Broadcast { root, .. } => Some(*root),
            Op::Gather { root, .. } | Op::Scatter { root, .. } => Some(*root),
            _ => None,
        }
    }

    /// Whether this is a message between two ranks rather than an operation of all.
    pub fn is_message(&self) -> bool {
        matches!(self, Op::Send { .. } | Op::Recv { .. })
    }

    /// Whether the slices of all ranks are of one length; so they are where there are none.
    pub fn is_even(&self) -> bool {
        match self {
            Op::AllGather { counts } | Op::ReduceScatter { counts, .. } => counts.is_even(),
            Op::Gather { counts, .. } | Op::Scatter { counts, .. } => counts.is_even(),
            Op::AllToAll { give, take } => give.is_even() && take.is_even(),
            _ => true,
        }
    }

    /// Elements needed of each buffer on `rank` of `size`, input and output apart.
    pub fn need(&self, rank: usize, size: usize) -> Need {
        let need = |input, output| Need { input, output };
        match self {
            Op::AllReduce { count, .. } => need(*count, *count),
            Op::Reduce { count, root, .. } => need(*count, if rank == *root { *count } else { 0 }),
            Op::Broadcast { count, root } => need(if rank == *root { *count } else { 0 }, *count),
            Op::AllGather { counts } => need(counts.of(rank), counts.total(size)),
            Op::ReduceScatter { counts, .. } => need(counts.total(size), counts.of(rank)),
            Op::AllToAll { give, take } => need(give.total(size), take.total(size)),
            Op::Gather { counts, root } => need(counts.of(rank), if rank == *root { counts.total(size) } else { 0 }),
            Op::Scatter { counts, root } => need(if rank == *root { counts.total(size) } else { 0 }, counts.of(rank)),
            Op::Barrier => need(0, 0),
            Op::Send { count, .. } => need(*count, 0),
            Op::Recv { count, .. } => need(0, *count),
        }
    }

    /// Elements needed of the one buffer on `rank` of `size` when the operation works in place, if it can.
    pub fn need_in_place(&self, rank: usize, size: usize) -> Option<usize> {
        match self {
            Op::Reduce { count, .. } => Some(*count),
            Op::AllReduce { .. } | Op::Broadcast { .. } | Op::AllGather { .. } | Op::Barrier => {
                Some(self.need(rank, size).output)
            }
            Op::ReduceScatter { counts, .. } => Some(counts.total(size)),
            _ => None,
        }
    }
}

impl Counts {
    /// A number for each rank.
    pub fn uneven(counts: &[usize]) -> Counts {
        Counts::Uneven(counts.into())
    }

    /// Elements of `rank`.
    pub fn of(&self, rank: usize) -> usize {
        match self {
            Counts::Even(count) => *count,
            Counts::Uneven(counts) => counts[rank],
        }
    }

    /// Elements of all `size` ranks together.
    ///
    /// Saturates: a sum beyond the address space matches no buffer, so it is refused by the length check.
    pub fn total(&self, size: usize) -> usize {
        match self {
            Counts::Even(count) => count.saturating_mul(size),
            Counts::Uneven(counts) => counts.iter().fold(0, |sum, &count| sum.saturating_add(count)),
        }
    }

    /// Whether every rank has the same number.
    pub fn is_even(&self) -> bool {
        matches!(self, Counts::Even(_))
    }
}

impl OpKind {
    /// Every operation, in wire order.
    pub const ALL: [OpKind; 11] = [
        OpKind::AllReduce,
        OpKind::Reduce,
        OpKind::Broadcast,
        OpKind::AllGather,
        OpKind::ReduceScatter,
        OpKind::AllToAll,
        OpKind::Gather,
        OpKind::Scatter,
        OpKind::Barrier,
        OpKind::Send,
        OpKind::Recv,
    ];

    /// The name, as it stands in every message.
    pub fn name(self) -> &'static str {
        match self {
            OpKind::AllReduce => "all_reduce",
            OpKind::Reduce => "reduce",
            OpKind::Broadcast => "broadcast",
            OpKind::AllGather => "all_gather",
            OpKind::ReduceScatter => "reduce_scatter",
            OpKind::AllToAll => "all_to_all",
            OpKind::Gather => "gather",
            OpKind::Scatter => "scatter",
            OpKind::Barrier => "barrier",
            OpKind::Send => "send",
            OpKind::Recv => "recv",
        }
    }

    /// Whether it concerns two ranks only.
    pub fn is_message(self) -> bool {
        matches!(self, OpKind::Send | OpKind::Recv)
    }

    /// The operation with this wire number, if there is one.
    pub fn from_wire(number: u8) -> Option<OpKind> {
        OpKind::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

impl From<OpKind> for &'static str {
    fn from(kind: OpKind) -> &'static str {
        kind.name()
    }
}

impl fmt::Display for OpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
