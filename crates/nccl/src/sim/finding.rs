//! What the simulator found wrong with a program: never how a fault of the script shows, always what the program did.

use std::fmt;
use std::panic::Location;

/// Something that a program may not do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// Two accesses to the same bytes, one of which writes, and nothing orders them.
    Race {
        /// Whose memory.
        rank: usize,
        /// The one that ran first here.
        first: Access,
        /// The other.
        second: Access,
    },
    /// Memory was used that had been freed.
    UseAfterFree {
        /// Whose memory.
        rank: usize,
        /// The use.
        access: Access,
        /// Where it was freed.
        freed: &'static Location<'static>,
    },
    /// Memory was freed that a communicator still knows.
    StillKnown {
        /// Whose memory.
        rank: usize,
        /// Where it was freed.
        freed: &'static Location<'static>,
    },
    /// Memory was used that nobody made.
    OutOfBounds {
        /// Whose program.
        rank: usize,
        /// The use.
        access: Access,
    },
    /// Ranks called different things in one communicator.
    Mismatch {
        /// Which of its collectives, from 0.
        number: usize,
        /// What one called, and where.
        ours: String,
        /// What another called, and where.
        theirs: String,
        /// Whether it goes on with wrong data; else it hangs.
        moves: bool,
    },
    /// A communicator was used while it was in progress.
    InProgress {
        /// Whose program.
        rank: usize,
        /// What was called.
        call: &'static str,
    },
    /// A communicator was split while its operations were under way.
    Outstanding {
        /// Whose program.
        rank: usize,
    },
    /// A communicator was used after its end.
    Gone {
        /// Whose program.
        rank: usize,
        /// What was called.
        call: &'static str,
    },
    /// Every thread waits for something that cannot come.
    Stuck {
        /// The threads.
        threads: Vec<String>,
    },
}

/// A use of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// What used it.
    pub what: &'static str,
    /// Where the program asked for that.
    pub site: &'static Location<'static>,
    /// Whether it writes.
    pub writes: bool,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.writes { "writes" } else { "reads" };
        write!(f, "{} {verb} (called at {})", self.what, self.site)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Race { rank, first, second } => {
                write!(f, "rank {rank}: nothing orders two uses of memory: {first}, {second}")
            }
            Finding::UseAfterFree { rank, access, freed } => {
                write!(f, "rank {rank}: memory is used that was freed at {freed}: {access}")
            }
            Finding::StillKnown { rank, freed } => {
                write!(f, "rank {rank}: memory is freed at {freed} that a communicator still knows")
            }
            Finding::OutOfBounds { rank, access } => {
                write!(f, "rank {rank}: memory is used that nobody made: {access}")
            }
            Finding::Mismatch { number, ours, theirs, moves } => {
                let so = if *moves { "so its data is wrong" } else { "so it hangs" };
                write!(f, "collective {number}: {ours}, but {theirs}, {so}")
            }
            Finding::InProgress { rank, call } => {
                write!(f, "rank {rank}: {call} on a communicator that is in progress")
            }
            Finding::Outstanding { rank } => {
                write!(f, "rank {rank}: ncclCommSplit on a communicator whose operations are under way")
            }
            Finding::Gone { rank, call } => write!(f, "rank {rank}: {call} on a communicator that is gone"),
            Finding::Stuck { threads } => write!(f, "all wait for what cannot come: {}", threads.join(", ")),
        }
    }
}
