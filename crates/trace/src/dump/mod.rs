//! A dump: one rank's account of one process, as plain data. How it is taken is in `take`, what it must hold in `check`, how it
//! is written as JSON in `json`.

mod check;
mod json;
mod take;
#[cfg(test)]
mod tests;

pub use json::FORMAT;
use serde::{Deserialize, Serialize};
pub use take::Identity;

/// What one rank remembers.
///
/// Times are nanoseconds since 1970 by the clock of the rank's host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dump {
    /// The number of the format.
    pub format: u32,
    /// The rank in the world.
    pub rank: usize,
    /// How many ranks the world has; none where that was not written down.
    pub world_size: Option<usize>,
    /// When the last rank came to the world, by that rank's clock: it tells the world from those of other jobs, of earlier starts, and from what it
    /// was before it changed. None where that was not written down.
    pub met_ns: Option<u64>,
    /// The name of its host.
    pub host_name: Option<String>,
    /// Its process.
    pub pid: Option<u32>,
    /// When the dump was taken.
    pub taken_ns: Option<u64>,
    /// The groups that the rank is in.
    pub groups: Vec<TracedGroup>,
    /// Their last operations, each group's in order.
    pub entries: Vec<Entry>,
}

/// One group as one of its ranks knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedGroup {
    /// What it is called.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Which life of the group this is.
    pub epoch: u32,
    /// Tells groups of one name, epoch and members apart, alike on all ranks; none where that was not written down.
    pub generation: Option<u64>,
    /// Its ranks in the world, in the order of their ranks in the group; none where that was not written down.
    pub members: Option<Vec<usize>>,
    /// How many older operations are no longer remembered.
    pub forgotten: u64,
    /// The number that its next collective will have; none where that was not written down.
    pub upcoming: Option<u64>,
    /// The first failure of the group, in words.
    pub verdict: Option<String>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The group's place in [`Dump::groups`].
    pub group: usize,
    /// Counts every operation of the group, messages included.
    pub record: u64,
    /// The number among the collectives, the same on every rank, or among this rank's messages.
    pub sequence: u64,
    /// What is done: `all_reduce`, `send`, ...
    pub kind: String,
    /// Whether it is a message between two ranks.
    pub is_message: bool,
    /// The type of the elements, where one was written down.
    pub dtype: Option<String>,
    /// How elements are joined.
    pub reduce: Option<String>,
    /// The root, or the peer of a message, by its rank in the group.
    pub peer: Option<usize>,
    /// What tells a message from others between the same two ranks; none where that was not written down.
    pub tag: Option<u32>,
    /// Elements that this rank gives.
    pub input: u64,
    /// Elements that this rank gets.
    pub output: u64,
    /// Whether every rank gives, or gets, as many elements as the others.
    pub even: bool,
    /// Where in the program it was called.
    pub site: Option<Site>,
    /// When it was called.
    pub created_ns: u64,
    /// When its turn came.
    pub started_ns: Option<u64>,
    /// When it ended.
    pub ended_ns: Option<u64>,
    /// How it stands.
    pub state: State,
    /// How long it may take.
    pub timeout_ns: Option<u64>,
    /// Whether it was begun ahead, and nobody waited for it when the dump was taken; false too where that was not written down.
    #[serde(default)]
    pub is_ahead: bool,
}

/// A line of the program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Site {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The function, where it is known.
    pub function: Option<String>,
}

/// How an operation stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits for its turn.
    Queued,
    /// It is being played.
    Started,
    /// It ended well.
    Done,
    /// It ended in an error of this kind.
    Failed(String),
}

impl Entry {
    /// Whether it has begun and not ended.
    pub fn is_pending(&self) -> bool {
        matches!(self.state, State::Queued | State::Started)
    }
}

impl TracedGroup {
    /// The rank in the world of a member, as far as that is known.
    pub fn world_rank(&self, rank: usize) -> Option<usize> {
        self.members.as_ref().map_or(Some(rank), |members| members.get(rank).copied())
    }
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl State {
    /// The state in one word.
    pub fn name(&self) -> &'static str {
        match self {
            State::Queued => "queued",
            State::Started => "started",
            State::Done => "done",
            State::Failed(_) => "failed",
        }
    }
}
