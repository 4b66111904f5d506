//! What became of a seed.

use std::fmt;

use phalanx_core::Error;

use crate::fault::FaultKind;
use crate::mutation::Mutation;
use crate::scene::Scene;

/// What was played from one seed, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub(crate) seed: u64,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) planted: Option<String>,
    pub(crate) scene: Scene,
    pub(crate) endings: Vec<Ending>,
    pub(crate) violation: Option<Violation>,
    pub(crate) struck: bool,
    pub(crate) answers: u64,
    pub(crate) ticks: u64,
    pub(crate) bytes: u64,
}

/// How a rank ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Ending {
    /// It finished its program, each answer right.
    Right,
    /// An operation failed, and the rank left.
    Failed {
        /// Which operation of the program, from 0.
        operation: usize,
        /// Why.
        error: Error,
    },
    /// The seed killed it.
    Killed,
    /// The seed stopped it for ever.
    Stopped,
    /// It was still at it when a violation ended the play.
    Unfinished,
}

/// What must not happen, and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub(crate) kind: ViolationKind,
    pub(crate) rank: usize,
    pub(crate) what: String,
}

/// What must not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ViolationKind {
    /// A call returned without error and without the right answer.
    WrongAnswer,
    /// A deadline passed although nothing was wrong, or a rank never ended.
    Hang,
    /// An error that nothing called for, or that blames a rank to which nothing happened.
    FalseAlarm,
    /// A rank left a barrier before all had come.
    EarlyLeave,
    /// Ranks called different things, and no rank ever got an error.
    Unnoticed,
}

impl Report {
    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The planted bug that was asked for.
    pub fn mutation(&self) -> Option<Mutation> {
        self.mutation
    }

    /// Where the bug was planted, if the program had a place for it.
    pub fn planted(&self) -> Option<&str> {
        self.planted.as_deref()
    }

    /// What must not happen, if it did.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Whether it is a bug of ours that showed: what must not happen did, and nothing was planted.
    pub fn is_bug_of_ours(&self) -> bool {
        self.violation.is_some() && self.planted.is_none()
    }

    /// The fault that the seed planned, if it came to strike before all was over.
    pub fn fault(&self) -> Option<FaultKind> {
        self.scene.fault.as_ref().filter(|_| self.struck).map(|fault| fault.kind())
    }

    /// How each rank ended.
    pub fn endings(&self) -> &[Ending] {
        &self.endings
    }

    /// How many calls returned with a right answer, over all ranks.
    pub fn answers(&self) -> u64 {
        self.answers
    }

    /// How long it took in virtual time; a tick stands for a microsecond.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Bytes that entered links and windows.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The command that plays this again.
    pub fn rerun(&self) -> String {
        let mutate = self.mutation.map_or(String::new(), |mutation| format!(" --mutate {mutation}"));
        format!("phalanx simulate --seed {}{mutate}", self.seed)
    }
}

impl Violation {
    /// Which of the things that must not happen.
    pub fn kind(&self) -> ViolationKind {
        self.kind
    }

    /// The rank on which it showed.
    pub fn rank(&self) -> usize {
        self.rank
    }
}

impl ViolationKind {
    /// The name, as printed.
    pub fn name(self) -> &'static str {
        match self {
            ViolationKind::WrongAnswer => "wrong answer",
            ViolationKind::Hang => "hang",
            ViolationKind::FalseAlarm => "false alarm",
            ViolationKind::EarlyLeave => "early leave",
            ViolationKind::Unnoticed => "unnoticed mismatch",
        }
    }
}

impl fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on rank {}: {}", self.kind, self.rank, self.what)
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Right => f.write_str("every answer right"),
            Ending::Failed { operation, error } => write!(f, "operation {operation} failed: {error}"),
            Ending::Killed => f.write_str("killed"),
            Ending::Stopped => f.write_str("stopped"),
            Ending::Unfinished => f.write_str("still at it"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}", self.seed, self.scene)?;
        if let Some(mutation) = self.mutation {
            let planted = self.planted.as_deref().unwrap_or("no place for it");
            writeln!(f, "  planted {mutation}: {planted}")?;
        }
        self.endings.iter().enumerate().try_for_each(|(rank, ending)| writeln!(f, "  rank {rank}: {ending}"))?;
        match &self.violation {
            Some(violation) => writeln!(f, "  {violation}")?,
            None => writeln!(f, "  as it must be")?,
        }
        writeln!(f, "  {} ticks, {} bytes", self.ticks, self.bytes)?;
        write!(f, "  again: {}", self.rerun())
    }
}
