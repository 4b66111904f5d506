//! Bugs that can be planted, by name. How each changes a schedule is in `plant`.

use std::fmt;
use std::str::FromStr;

/// A bug to plant in the schedules of one operation, to show that the simulator finds it.
///
/// All keep what one rank sends as long as its peer expects, so that the program runs on and ends in a wrong answer; only
/// another peer's window may be too short, which is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mutation {
    /// One receive of one rank that should fold what comes only stores it.
    DroppedFold,
    /// Two sends of one rank to the same peer, of equal length, swap what they send.
    SwappedSegment,
    /// A barrier lacks one of its steps on all ranks; over windows, one rank does not look at one of its peers.
    MissingBarrierStep,
    /// A span of one rank begins one element beside where it should.
    OffByOneSpan,
    /// One send of one rank leaves before the receive that it passes on: it sends what was there before.
    StaleBuffer,
    /// All ranks play the operation for the root after the one that was asked for.
    WrongRoot,
    /// One receive of one rank folds what comes twice.
    DoubleFold,
    /// The last element of one receive of one rank never arrives in its place.
    ShortReceive,
    /// One rank leaves somebody's part out where all parts are joined at once.
    MissingPart,
    /// One rank looks into the window of another peer than it should.
    WrongWindow,
    /// One rank forgets to divide an average that was folded pair by pair.
    MissingFinish,
}

impl Mutation {
    /// Every mutation.
    pub const ALL: [Mutation; 11] = [
        Mutation::DroppedFold,
        Mutation::SwappedSegment,
        Mutation::MissingBarrierStep,
        Mutation::OffByOneSpan,
        Mutation::StaleBuffer,
        Mutation::WrongRoot,
        Mutation::DoubleFold,
        Mutation::ShortReceive,
        Mutation::MissingPart,
        Mutation::WrongWindow,
        Mutation::MissingFinish,
    ];

    /// The name, as printed and parsed.
    pub fn name(self) -> &'static str {
        match self {
            Mutation::DroppedFold => "dropped_fold",
            Mutation::SwappedSegment => "swapped_segment",
            Mutation::MissingBarrierStep => "missing_barrier_step",
            Mutation::OffByOneSpan => "off_by_one_span",
            Mutation::StaleBuffer => "stale_buffer",
            Mutation::WrongRoot => "wrong_root",
            Mutation::DoubleFold => "double_fold",
            Mutation::ShortReceive => "short_receive",
            Mutation::MissingPart => "missing_part",
            Mutation::WrongWindow => "wrong_window",
            Mutation::MissingFinish => "missing_finish",
        }
    }

    /// What is planted, in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Mutation::DroppedFold => "a receive that should fold only stores",
            Mutation::SwappedSegment => "two sends to the same peer swap what they send",
            Mutation::MissingBarrierStep => "a barrier lacks one of its steps",
            Mutation::OffByOneSpan => "a span begins one element beside its place",
            Mutation::StaleBuffer => "a send leaves before the receive that it passes on",
            Mutation::WrongRoot => "all ranks play for the root after the right one",
            Mutation::DoubleFold => "a receive folds what comes twice",
            Mutation::ShortReceive => "the last element of a receive never arrives in its place",
            Mutation::MissingPart => "a join leaves one rank's part out",
            Mutation::WrongWindow => "a rank looks into another peer's window",
            Mutation::MissingFinish => "an average is not divided at the end",
        }
    }
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Mutation {
    type Err = UnknownMutation;

    fn from_str(text: &str) -> Result<Mutation, UnknownMutation> {
        let found = Mutation::ALL.into_iter().find(|mutation| mutation.name() == text);
        found.ok_or_else(|| UnknownMutation(text.to_owned()))
    }
}

/// A name that no mutation has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown mutation '{0}'; one of {names}", names = Mutation::ALL.map(Mutation::name).join(", "))]
pub struct UnknownMutation(String);
