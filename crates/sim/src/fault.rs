//! What may go wrong: the kinds by name, and one drawn fault with its place.

use std::fmt;

/// The kinds of faults that a seed may plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FaultKind {
    /// The link between two ranks breaks, with or without a sign of it.
    CutLink,
    /// One byte in flight becomes another.
    FlippedByte,
    /// A rank is gone: its links close, or it falls silent.
    KilledRank,
    /// A rank begins after everybody's deadline.
    LateRank,
    /// A rank stops in the middle, for ever or beyond everybody's deadline.
    StoppedRank,
    /// One rank calls something else than the others.
    Mismatch,
}

/// One fault.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    Cut { a: usize, b: usize, silent: bool, when: When },
    Flip { when: When },
    Kill { rank: usize, end: LastWords, when: When },
    Late { rank: usize },
    Stop { rank: usize, resumes: bool, when: When },
    Mismatch { rank: usize, act: usize },
}

/// What becomes of what a killed rank had sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastWords {
    /// It still arrives, then the links are closed.
    Arrive,
    /// The links are closed at once.
    Lost,
    /// Nothing arrives, and no link closes.
    Silence,
}

/// When a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// At this tick.
    Tick(u64),
    /// Once so many thousandths of all bytes have moved.
    Moved(u64),
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [FaultKind; 6] = [
        FaultKind::CutLink,
        FaultKind::FlippedByte,
        FaultKind::KilledRank,
        FaultKind::LateRank,
        FaultKind::StoppedRank,
        FaultKind::Mismatch,
    ];

    /// The name, as printed.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::CutLink => "cut_link",
            FaultKind::FlippedByte => "flipped_byte",
            FaultKind::KilledRank => "killed_rank",
            FaultKind::LateRank => "late_rank",
            FaultKind::StoppedRank => "stopped_rank",
            FaultKind::Mismatch => "mismatch",
        }
    }
}

impl Fault {
    pub(crate) fn kind(&self) -> FaultKind {
        match self {
            Fault::Cut { .. } => FaultKind::CutLink,
            Fault::Flip { .. } => FaultKind::FlippedByte,
            Fault::Kill { .. } => FaultKind::KilledRank,
            Fault::Late { .. } => FaultKind::LateRank,
            Fault::Stop { .. } => FaultKind::StoppedRank,
            Fault::Mismatch { .. } => FaultKind::Mismatch,
        }
    }

    /// When it strikes; the rest is there from the beginning.
    pub(crate) fn when(&self) -> Option<When> {
        match self {
            Fault::Cut { when, .. } | Fault::Flip { when } => Some(*when),
            Fault::Kill { when, .. } | Fault::Stop { when, .. } => Some(*when),
            Fault::Late { .. } | Fault::Mismatch { .. } => None,
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Cut { a, b, silent, .. } => {
                let how = if *silent { ", silently" } else { "" };
                write!(f, "link between ranks {a} and {b} cut{how}")
            }
            Fault::Flip { .. } => write!(f, "a byte flipped"),
            Fault::Kill { rank, end, .. } => match end {
                LastWords::Arrive => write!(f, "rank {rank} killed"),
                LastWords::Lost => write!(f, "rank {rank} killed, what it sent is lost"),
                LastWords::Silence => write!(f, "rank {rank} killed, its links stay silent"),
            },
            Fault::Late { rank } => write!(f, "rank {rank} begins too late"),
            Fault::Stop { rank, resumes, .. } => {
                let how = if *resumes { "until it is too late" } else { "for ever" };
                write!(f, "rank {rank} stopped {how}")
            }
            Fault::Mismatch { rank, act } => write!(f, "rank {rank} calls something else in operation {act}"),
        }?;
        match self.when() {
            Some(When::Tick(tick)) => write!(f, ", from tick {tick} on"),
            Some(When::Moved(part)) => write!(f, ", once {part}/1000 of the bytes have moved"),
            None => Ok(()),
        }
    }
}
