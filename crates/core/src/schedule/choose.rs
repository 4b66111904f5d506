//! Which algorithm plays an operation: decided from numbers alone, and the same on every rank.

use std::fmt;
use std::str::FromStr;

use super::Profile;
use crate::op::{Counts, OpKind};
use crate::reduce::ReduceOp;
use crate::{Class, DType, Layout, Op};

/// A way to carry out operations. `docs/algorithms.md` tells the steps and bytes of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Algorithm {
    /// Neighbours on a circle: the fewest connections.
    Ring,
    /// Recursive halving and doubling: log2 steps and no byte more than the ring.
    Halving,
    /// Recursive doubling of everything: log2 steps, for small data.
    Doubling,
    /// Binomial tree, pipelined by segments.
    Tree,
    /// A tree of one branch, pipelined by segments.
    Chain,
    /// Pairwise exchange; all inputs come together at the owner of a slice.
    Exchange,
    /// Windows of one host: each rank folds its slice of all windows.
    Direct,
    /// Windows of one host: each rank folds everything, for small data.
    AtOnce,
    /// Inside every host first, then between hosts.
    TwoLevel,
    /// Everybody tells everybody in log2 steps.
    Dissemination,
}

/// What the choice stands on besides the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ground {
    /// Bytes of elements that fit one slot of the windows of this host, besides the fingerprint; 0 when there are none.
    pub slot_byte_len: usize,
    /// Below this many bytes latency counts more than bandwidth.
    pub small_byte_len: usize,
    /// The most bytes that travel in one piece.
    pub segment_byte_len: usize,
    /// How two ranks cut what each of them folds whole.
    pub pieces: Pieces,
}

/// The pieces of what is longer than one of 128 KiB, as far as it fits slots: as many as these at most and none shorter, but for what would
/// be longer than the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// The most pieces that are shorter than they must be.
    pub most: usize,
    /// The bytes of the shortest of them.
    pub shortest: usize,
    /// The most bytes of any piece.
    pub longest: usize,
}

impl Default for Pieces {
    /// Short ones, so that the slots in use lie in the second-level cache together with the data, as long as there is hope that these do.
    fn default() -> Pieces {
        Pieces { most: 32, shortest: 32 << 10, longest: 129 << 10 }
    }
}

impl Pieces {
    /// The longest piece of so many bytes, where a slot has this room.
    fn longest(self, byte_len: usize, room: usize) -> usize {
        let longest = if byte_len <= WHOLE { byte_len } else { self.cut(byte_len) };
        longest.min(self.longest).min(room)
    }

    /// The longest piece of so many bytes that are cut in any case.
    fn cut(self, byte_len: usize) -> usize {
        (byte_len / self.most.max(1)).max(self.shortest)
    }
}

impl Default for Ground {
    /// Without windows, by the profile that is used where none is given.
    fn default() -> Ground {
        Profile::default().ground(0, false)
    }
}

impl Ground {
    /// Whether there are windows whose slots are long enough for `size` ranks: a slot takes a piece of every slice, and
    /// each piece may be one element longer than its share.
    pub fn has_windows(&self, size: usize) -> bool {
        self.slot_byte_len / 2 >= size * LONGEST_ELEMENT
    }

    /// The bytes that may be cut into pieces for one slot.
    fn slot_room(&self, size: usize) -> usize {
        self.slot_byte_len.saturating_sub(size * LONGEST_ELEMENT)
    }
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Algorithm; 10] = [
        Algorithm::Ring,
        Algorithm::Halving,
        Algorithm::Doubling,
        Algorithm::Tree,
        Algorithm::Chain,
        Algorithm::Exchange,
        Algorithm::Direct,
        Algorithm::AtOnce,
        Algorithm::TwoLevel,
        Algorithm::Dissemination,
    ];

    /// The name, as printed and parsed.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Ring => "ring",
            Algorithm::Halving => "halving",
            Algorithm::Doubling => "doubling",
            Algorithm::Tree => "tree",
            Algorithm::Chain => "chain",
            Algorithm::Exchange => "exchange",
            Algorithm::Direct => "direct",
            Algorithm::AtOnce => "at_once",
            Algorithm::TwoLevel => "two_level",
            Algorithm::Dissemination => "dissemination",
        }
    }

    /// Whether this algorithm can carry out this operation at all, wherever the ranks live.
    pub fn plays(self, op: &Op, dtype: DType) -> bool {
        use Algorithm::*;
        let known = match op.kind() {
            OpKind::AllReduce => {
                matches!(self, Ring | Halving | Doubling | Tree | Exchange | Direct | AtOnce | TwoLevel)
            }
            OpKind::Reduce => matches!(self, Tree | Chain | Exchange | Direct | TwoLevel),
            OpKind::Broadcast => matches!(self, Ring | Tree | Chain | Direct | TwoLevel),
            OpKind::AllGather => matches!(self, Ring | Halving | Exchange | Direct | TwoLevel),
            OpKind::ReduceScatter => matches!(self, Ring | Halving | Exchange | Direct | TwoLevel),
            OpKind::AllToAll => matches!(self, Exchange | Direct),
            OpKind::Gather | OpKind::Scatter => matches!(self, Tree | Exchange | Direct),
            OpKind::Barrier => matches!(self, Dissemination | Direct),
            OpKind::Send | OpKind::Recv => false,
        };
        known && self.knows_offsets(op) && (self.joins_at_once() || !needs_all_inputs(op, dtype))
    }

    /// Whether this algorithm reads the windows of one host, so that all ranks must share it.
    pub fn reads_windows(self) -> bool {
        matches!(self, Algorithm::Direct | Algorithm::AtOnce)
    }

    /// In how many pieces the data of an operation travels. Algorithms whose steps depend on each other gain by several,
    /// and what goes through windows must fit their slots; the rest send whole.
    pub fn segments(self, op: &Op, dtype: DType, layout: &Layout, ground: &Ground) -> usize {
        let byte_len = shared_byte_len(op, dtype, layout);
        let (piece, limit) = match self {
            Algorithm::Direct if matches!(op.kind(), OpKind::AllGather | OpKind::Gather) => {
                (longest_byte_len(op, dtype, layout.size()), ground.slot_room(layout.size()))
            }
            // What a rank keeps for itself is not published.
            Algorithm::Direct if keeps_a_share(op) => {
                let share = byte_len / layout.size();
                ((byte_len - share).max(share), ground.slot_room(layout.size()))
            }
            // The other rank reads a piece while the root writes the next.
            Algorithm::Direct if op.kind() == OpKind::Broadcast && layout.size() <= 2 => {
                (byte_len, OF_BROADCASTS.cut(byte_len).min(ground.slot_room(layout.size())))
            }
            Algorithm::Direct => (byte_len, ground.slot_room(layout.size())),
            Algorithm::AtOnce => (byte_len, ground.pieces.longest(byte_len, ground.slot_room(layout.size()))),
            Algorithm::TwoLevel if ground.has_windows(layout.size()) => {
                (byte_len, ground.slot_room(layout.size()).min(ground.segment_byte_len))
            }
            Algorithm::Ring | Algorithm::Exchange => {
                (longest_byte_len(op, dtype, layout.size()), ground.segment_byte_len)
            }
            // Between two nobody passes anything on.
            Algorithm::Chain if layout.size() <= 2 => (0, 1),
            Algorithm::Tree | Algorithm::Chain | Algorithm::TwoLevel => (byte_len, ground.segment_byte_len),
            Algorithm::Halving | Algorithm::Doubling | Algorithm::Dissemination => (0, 1),
        };
        piece.div_ceil(limit.max(1)).max(1)
    }

    /// Whether the owner of a slice has all its inputs at hand before it joins any.
    fn joins_at_once(self) -> bool {
        matches!(self, Algorithm::Exchange | Algorithm::Direct | Algorithm::AtOnce)
    }

    /// A window is read by offsets, and a rank does not know those of its peers' uneven all-to-all tables.
    fn knows_offsets(self, op: &Op) -> bool {
        match op {
            Op::AllToAll { give, take } => self != Algorithm::Direct || (give.is_even() && take.is_even()),
            _ => true,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Algorithm, String> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == text).ok_or_else(|| {
            let names: Vec<_> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
            format!("unknown algorithm '{text}'; one of {}", names.join(", "))
        })
    }
}

/// The algorithm and the number of segments for an operation.
///
/// Stands only on what all ranks share, so that all choose alike: an uneven all-to-all, whose tables differ from rank to
/// rank, always has the same answer.
pub fn choose(op: &Op, dtype: DType, layout: &Layout, ground: &Ground) -> (Algorithm, usize) {
    let byte_len = shared_byte_len(op, dtype, layout);
    let windows = layout.is_one_host() && ground.has_windows(layout.size());
    let algorithm = if windows && Algorithm::Direct.plays(op, dtype) {
        through_windows(op, byte_len <= ground.small_byte_len || layout.size() <= 2)
    } else {
        over_links(op, dtype, layout, byte_len, ground)
    };
    (algorithm, algorithm.segments(op, dtype, layout, ground))
}

fn through_windows(op: &Op, small: bool) -> Algorithm {
    match op.kind() {
        OpKind::AllReduce if small => Algorithm::AtOnce,
        _ => Algorithm::Direct,
    }
}

fn over_links(op: &Op, dtype: DType, layout: &Layout, byte_len: usize, ground: &Ground) -> Algorithm {
    let small = byte_len <= ground.small_byte_len;
    let two_level = !layout.is_one_host() && layout.leaders().len() < layout.size();
    match op.kind() {
        OpKind::Barrier => Algorithm::Dissemination,
        OpKind::AllToAll => Algorithm::Exchange,
        OpKind::Gather | OpKind::Scatter if small => Algorithm::Tree,
        OpKind::Gather | OpKind::Scatter => Algorithm::Exchange,
        _ if two_level && Algorithm::TwoLevel.plays(op, dtype) => Algorithm::TwoLevel,
        OpKind::AllReduce | OpKind::ReduceScatter | OpKind::Reduce if profits_from_all_inputs(op, dtype) => {
            Algorithm::Exchange
        }
        OpKind::AllReduce if small => Algorithm::Doubling,
        OpKind::AllReduce | OpKind::AllGather | OpKind::ReduceScatter if small => Algorithm::Halving,
        OpKind::Reduce | OpKind::Broadcast if small => Algorithm::Tree,
        OpKind::Reduce => whole_or_in_slices(Algorithm::Exchange, byte_len, layout.size(), ground),
        OpKind::Broadcast => whole_or_in_slices(Algorithm::Ring, byte_len, layout.size(), ground),
        _ => Algorithm::Ring,
    }
}

/// How the data of one root travels. Cut `in_slices` it crosses the root's link nearly twice; along a chain once, but for a piece more for each
/// rank between root and end; in a tree of two levels at most twice, with fewer steps than slices take.
fn whole_or_in_slices(in_slices: Algorithm, byte_len: usize, size: usize, ground: &Ground) -> Algorithm {
    let pieces = byte_len / ground.segment_byte_len.max(1);
    match size {
        ..=2 => Algorithm::Chain,
        _ if pieces >= size => Algorithm::Chain,
        3 | 4 => Algorithm::Tree,
        _ => in_slices,
    }
}

/// The bytes of the longest slice, as far as all ranks know it.
fn longest_byte_len(op: &Op, dtype: DType, size: usize) -> usize {
    let len = match op {
        Op::AllGather { counts } | Op::ReduceScatter { counts, .. } => longest(counts, size),
        Op::Gather { counts, .. } | Op::Scatter { counts, .. } => longest(counts, size),
        _ => shared_len(op, size).div_ceil(size),
    };
    len.saturating_mul(dtype.byte_len())
}

/// Elements of the longest slice.
fn longest(counts: &Counts, size: usize) -> usize {
    (0..size).map(|rank| counts.of(rank)).max().unwrap_or(0)
}

/// Whether each rank publishes all slices but one, or one, and all are of one length.
fn keeps_a_share(op: &Op) -> bool {
    matches!(op, Op::AllReduce { .. } | Op::AllToAll { .. } | Op::ReduceScatter { counts: Counts::Even(_), .. })
}

/// Bytes of the longest buffer, as far as all ranks know it.
fn shared_byte_len(op: &Op, dtype: DType, layout: &Layout) -> usize {
    shared_len(op, layout.size()).saturating_mul(dtype.byte_len())
}

/// Elements of the longest buffer, as far as all ranks know it.
fn shared_len(op: &Op, size: usize) -> usize {
    match op {
        Op::AllReduce { count, .. } | Op::Reduce { count, .. } | Op::Broadcast { count, .. } => *count,
        Op::AllGather { counts } | Op::ReduceScatter { counts, .. } => counts.total(size),
        Op::Gather { counts, .. } | Op::Scatter { counts, .. } => counts.total(size),
        Op::AllToAll { give, take } if give.is_even() && take.is_even() => give.total(size),
        _ => 0,
    }
}

/// An integer average is the truncated quotient of the widened sum, which no pairwise fold can carry; and the sum of 16-bit floats
/// whose average is one may be too large for their 5 bits of exponent.
pub(crate) fn needs_all_inputs(op: &Op, dtype: DType) -> bool {
    op.reduce() == Some(ReduceOp::Avg) && (dtype.class() == Class::Integer || dtype == DType::F16)
}

/// 16-bit floats lose bits at every pairwise fold; joined at once they round once, for no byte more.
fn profits_from_all_inputs(op: &Op, dtype: DType) -> bool {
    needs_all_inputs(op, dtype) || matches!(dtype, DType::F16 | DType::BF16)
}

/// The most bytes that two ranks fold in one piece, if a slot has room for them.
const WHOLE: usize = 128 << 10;
/// The pieces of a broadcast of two ranks. Of more ranks than cores each would be a switch. By measurement: see docs/tuning.md.
const OF_BROADCASTS: Pieces = Pieces { most: 8, shortest: 32 << 10, longest: usize::MAX };
/// Bytes of the longest element type.
const LONGEST_ELEMENT: usize = 16;
