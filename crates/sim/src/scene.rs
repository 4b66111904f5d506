//! A scene: everything that one seed chooses, before anything moves. Numbers only; the data is drawn in `data`.

use std::fmt;

use phalanx_core::reduce::Factor;
use phalanx_core::schedule::{Algorithm, Plan, Schedule, build};
use phalanx_core::{Counts, DType, Layout, Op};

use crate::fault::Fault;

/// What one rank calls at one place of the program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) op: Op,
    pub(crate) dtype: DType,
    /// This rank's factor, for the reduction that has one.
    pub(crate) factor: Option<Factor>,
    pub(crate) algorithm: Algorithm,
    pub(crate) segments: usize,
    pub(crate) in_place: bool,
    /// Whether a two-level schedule uses windows inside hosts.
    pub(crate) windows: bool,
}

/// One operation of the program: what each rank calls.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Act {
    pub(crate) calls: Vec<Call>,
    /// The rank that calls something else than the others.
    pub(crate) odd: Option<usize>,
}

/// How the links, windows and ranks behave when nothing is broken.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Temper {
    /// The most bytes that one call moves.
    pub(crate) piece: usize,
    /// Of 256 calls, how many are told "not now" although something could move.
    pub(crate) refusal: u8,
    /// Bytes that a link holds.
    pub(crate) capacity: usize,
    /// The longest time that bytes travel.
    pub(crate) delay: u64,
    /// Of 256 polls, after how many the same rank is polled again.
    pub(crate) burst: u8,
    /// A rank that is polled rarely.
    pub(crate) slow: Option<usize>,
}

/// A time during which one rank is not polled; short enough that nobody's deadline passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stall {
    pub(crate) rank: usize,
    pub(crate) at: u64,
    pub(crate) ticks: u64,
}

/// Everything that a seed chooses, except the data and the dice of the play itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scene {
    /// The host of every rank.
    pub(crate) hosts: Vec<u32>,
    /// Whether ranks of one host have windows to each other.
    pub(crate) boards: bool,
    /// Bytes of an offer that fit a window.
    pub(crate) slot_byte_len: usize,
    pub(crate) acts: Vec<Act>,
    pub(crate) temper: Temper,
    pub(crate) stalls: Vec<Stall>,
    /// Whether frames carry checksums.
    pub(crate) checksum: bool,
    /// Whether a rank that fails tells the others, rather than only closing its links.
    pub(crate) spread: bool,
    pub(crate) fault: Option<Fault>,
}

impl Scene {
    pub(crate) fn size(&self) -> usize {
        self.hosts.len()
    }

    /// Every rank's schedule of every act.
    pub(crate) fn schedules(&self, layout: &Layout) -> Vec<Vec<Schedule>> {
        let of = |act: &Act| {
            let ranks = act.calls.iter().enumerate();
            ranks.map(|(rank, call)| call.schedule(&layout.seen_from(rank))).collect()
        };
        self.acts.iter().map(of).collect()
    }
}

impl Act {
    /// What the ranks that agree call, as the first of them sees it.
    pub(crate) fn usual(&self) -> &Call {
        &self.calls[usize::from(self.odd == Some(0))]
    }
}

impl Call {
    /// The schedule that the core decides for this call. Every call is drawn such that there is one.
    pub(crate) fn schedule(&self, layout: &Layout) -> Schedule {
        let plan = Plan {
            layout,
            op: &self.op,
            dtype: self.dtype,
            in_place: self.in_place,
            algorithm: self.algorithm,
            segments: self.segments,
            windows: self.windows,
        };
        build(&plan).expect("the algorithm was drawn among those that play the operation")
    }

    /// The two buffers as the caller holds them before the call.
    pub(crate) fn buffers(&self, rank: usize, size: usize, given: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (unit, need) = (self.dtype.byte_len(), self.op.need(rank, size));
        match self.op.need_in_place(rank, size).filter(|_| self.in_place) {
            None => (given.to_vec(), vec![UNTOUCHED; need.output * unit]),
            Some(len) => {
                let mut buffer = vec![UNTOUCHED; len * unit];
                let start = match &self.op {
                    Op::AllGather { counts } => before(counts, rank) * unit,
                    _ => 0,
                };
                buffer[start..start + given.len()].copy_from_slice(given);
                (vec![], buffer)
            }
        }
    }

    /// Where in the output buffer the result begins.
    pub(crate) fn result_start(&self, rank: usize) -> usize {
        match &self.op {
            Op::ReduceScatter { counts, .. } if self.in_place => before(counts, rank) * self.dtype.byte_len(),
            _ => 0,
        }
    }
}

/// Elements of all ranks before this one.
pub(crate) fn before(counts: &Counts, rank: usize) -> usize {
    (0..rank).map(|other| counts.of(other)).sum()
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.op.kind())?;
        match &self.op {
            Op::AllReduce { count, .. } | Op::Reduce { count, .. } | Op::Broadcast { count, .. } => {
                write!(f, " of {count}")?;
            }
            Op::AllGather { counts } | Op::ReduceScatter { counts, .. } => show_counts(f, counts)?,
            Op::Gather { counts, .. } | Op::Scatter { counts, .. } => show_counts(f, counts)?,
            Op::AllToAll { give, .. } => show_counts(f, give)?,
            _ => {}
        }
        write!(f, " {}", self.dtype)?;
        self.op.reduce().map_or(Ok(()), |reduce| write!(f, ", reduce {reduce}"))?;
        self.op.root().map_or(Ok(()), |root| write!(f, ", root {root}"))?;
        write!(f, ", {} in {} segments", self.algorithm, self.segments)?;
        f.write_str(if self.in_place { ", in place" } else { "" })?;
        f.write_str(if self.windows { ", windows" } else { "" })
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.usual())?;
        self.odd.map_or(Ok(()), |rank| write!(f, "; but rank {rank}: {}", self.calls[rank]))
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let temper = &self.temper;
        write!(f, "{} ranks on hosts {:?}", self.size(), self.hosts)?;
        f.write_str(if self.boards { " with windows" } else { "" })?;
        f.write_str(if self.checksum { ", checksums" } else { "" })?;
        match temper.piece {
            usize::MAX => f.write_str(", pieces of any length")?,
            piece => write!(f, ", pieces up to {piece}")?,
        }
        write!(f, ", links of {} bytes", temper.capacity)?;
        write!(f, ", delay {}, {} stalls", temper.delay, self.stalls.len())?;
        match &self.fault {
            Some(fault) => writeln!(f, ", fault: {fault}")?,
            None => writeln!(f, ", no fault")?,
        }
        self.acts.iter().enumerate().try_for_each(|(index, act)| writeln!(f, "  operation {index}: {act}"))
    }
}

fn show_counts(f: &mut fmt::Formatter<'_>, counts: &Counts) -> fmt::Result {
    match counts {
        Counts::Even(count) => write!(f, " of {count} a rank"),
        Counts::Uneven(counts) => write!(f, " of {counts:?}"),
    }
}

/// What stands in an output buffer before the call.
const UNTOUCHED: u8 = 0x5A;
