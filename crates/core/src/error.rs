//! One error type for the whole stack: seven kinds, each saying who is at fault and what is still usable.

mod numbers;
mod sources;
mod words;

use std::fmt;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use words::{awaited, here, lost};

use crate::Site;
use crate::op::OpKind;

/// What every fallible call of the stack returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call did not give its result.
///
/// The variant says who is at fault, [`Error::scope`] what the caller can still use, and the message one line that
/// names the rank, argument or value. `docs/failures.md` lists what to do next for each.
///
/// A rank that is named is always the world's, also where a group of some of its ranks failed: so it is the rank that logs, dumps and the
/// launcher name. A group that was made without a world counts for one.
///
/// `Debug` is the kind and the message, because that is what a program shows whose `main` returns an error, or that unwraps one.
///
/// ```
/// # use phalanx_core::{Error, Scope};
/// /// What a program that survives the loss of ranks does next.
/// fn next(error: &Error) -> String {
///     match error.scope() {
///         Scope::Call => format!("mend the call, and go on with the group: {error}"),
///         Scope::Group => format!("form a group without ranks {:?}: {error}", error.culprits()),
///         _ => format!("end: {error}"),
///     }
/// }
/// # assert!(next(&Error::setup("memory", "none is left")).starts_with("end"));
/// ```
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call itself is wrong: a length, dtype, rank or combination. Nothing was sent.
    #[error(transparent)]
    Usage(Box<Usage>),
    /// Ranks disagree about the operation at one sequence number.
    #[error(transparent)]
    Desync(Box<Desync>),
    /// Another rank is dead, unresponsive or gone.
    #[error(transparent)]
    Peer(Box<Peer>),
    /// The deadline passed; the ranks waited for are listed.
    #[error(transparent)]
    Timeout(Box<Timeout>),
    /// Somebody ended the group; the cause is carried along.
    #[error(transparent)]
    Aborted(Box<Aborted>),
    /// A device or its driver failed.
    #[error(transparent)]
    Device(Box<Device>),
    /// The environment is not as needed: memory, a library, a store, a key.
    #[error(transparent)]
    Setup(Box<Setup>),
}

/// The kind of an [`Error`], for counting and matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ErrorKind {
    /// See [`Error::Usage`].
    Usage,
    /// See [`Error::Desync`].
    Desync,
    /// See [`Error::Peer`].
    Peer,
    /// See [`Error::Timeout`].
    Timeout,
    /// See [`Error::Aborted`].
    Aborted,
    /// See [`Error::Device`].
    Device,
    /// See [`Error::Setup`].
    Setup,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [ErrorKind; 7] = {
        use ErrorKind::{Aborted, Desync, Device, Peer, Setup, Timeout, Usage};
        [Usage, Desync, Peer, Timeout, Aborted, Device, Setup]
    };

    /// Its name in dumps, metrics and reports.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Usage => "usage",
            ErrorKind::Desync => "desync",
            ErrorKind::Peer => "peer",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Aborted => "aborted",
            ErrorKind::Device => "device",
            ErrorKind::Setup => "setup",
        }
    }
}

/// What an error leaves usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// This call alone failed: correct it and go on with the same group.
    Call,
    /// The group is finished: build a new one without the culprit.
    Group,
    /// The process cannot go on as it is: tell the operator.
    Process,
}

/// An argument that cannot be accepted, by name and value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {argument} is {value}, {expected}")]
pub struct Usage {
    /// What was called.
    pub call: &'static str,
    /// The argument's name as it stands in the signature.
    pub argument: &'static str,
    /// The value that was given.
    pub value: String,
    /// What would have been accepted: "must be ...".
    pub expected: String,
}

/// A difference between what two ranks called at the same place in their program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation {sequence}: rank {rank} called with {field} {ours}, rank {peer} with {field} {theirs}{}", here(*site))]
pub struct Desync {
    /// Sequence number of the operation on this rank.
    pub sequence: u32,
    /// This rank.
    pub rank: usize,
    /// The rank that disagrees.
    pub peer: usize,
    /// What they disagree about.
    pub field: &'static str,
    /// This rank's value.
    pub ours: String,
    /// The peer's value.
    pub theirs: String,
    /// Whether data may have moved before the difference was seen. Where it may have, every rank is told, and output has no
    /// meaning; the ranks come together again at their next calls.
    pub moved: bool,
    /// Where the rank that gets this error called the operation, if it did and remembers it.
    pub site: Option<Site>,
}

/// A rank that can no longer be worked with, or several that were lost at once and in the same way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", lost(*rank, others, *reason))]
pub struct Peer {
    /// The culprit; of several the lowest.
    pub rank: usize,
    /// The other culprits, in order; mostly there are none.
    pub others: Vec<usize>,
    /// How it was lost.
    pub reason: PeerReason,
    /// What was seen.
    pub detail: String,
}

/// How a peer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerReason {
    /// Its process or connection ended without a word.
    Dead,
    /// It left the group cleanly.
    Left,
    /// Bytes from it are not what was sent.
    Corrupt,
    /// It has not been heard for so long that it must be stopped or cut off.
    Unresponsive,
}

/// A deadline that passed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{op} (operation {sequence}) not finished after {after:?}; waiting for {}", awaited(stuck, chain))]
pub struct Timeout {
    /// The operation.
    pub op: OpKind,
    /// Its sequence number.
    pub sequence: u32,
    /// How long it was given.
    pub after: Duration,
    /// The peers that it was waiting for when the deadline passed, without those that themselves waited for others.
    pub stuck: Vec<Stuck>,
    /// How it came to wait for them.
    pub chain: Chain,
}

/// How an operation comes to wait for somebody, as far as the ranks have told each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Chain {
    /// By itself.
    #[default]
    Direct,
    /// Through others, each of which waits for the next.
    Through(String),
    /// Through others, for ranks of which some are not in this group.
    Beyond {
        /// How to the first of them.
        path: String,
        /// Those at the end, by their numbers in the world.
        ranks: Vec<usize>,
    },
    /// Those whom it waits for wait for each other or for it: a deadlock, in which no rank is at fault more than another.
    Circle(String),
}

/// One transfer that makes no progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The peer at the other end.
    pub peer: usize,
    /// What is awaited of it.
    pub on: Waiting,
}

/// What one side of a transfer waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waiting {
    /// The peer to take bytes.
    Taking,
    /// The peer to give bytes.
    Giving,
    /// The peer to come, of which nothing more is known.
    Arriving,
    /// Something of the peer that others wait for.
    Unknown,
    /// The rank itself that reports this. It waits for nobody, but has not come to the end of its own part; whether others were late
    /// before is not known, so it is no culprit.
    Working,
    /// The peer to come to the operation, which it has not called as far as is known.
    Coming {
        /// What it called last.
        last: Option<Last>,
    },
}

/// The last collective that a rank is known to have called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    /// The operation.
    pub op: OpKind,
    /// Its sequence number.
    pub sequence: u32,
    /// Where the rank that reports this called the same operation, as file, line and column; empty where that is not known any
    /// more, or several ranks are missing and another one's is told.
    pub site: String,
}

/// The end of a group at somebody's wish, or in the wake of a first failure.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("group aborted: {why}")]
pub struct Aborted {
    /// The reason in words.
    pub why: String,
    /// The first failure, when there was one.
    pub cause: Option<Arc<Error>>,
}

/// A failure of a device, its driver or library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("device: {name} ({code}): {text}")]
pub struct Device {
    /// The library's code.
    pub code: i64,
    /// The code's name.
    pub name: String,
    /// The library's own words.
    pub text: String,
    /// Whether the device stays unusable for this process.
    pub sticky: bool,
}

/// Something the environment lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Setup {
    /// What was being set up.
    pub what: String,
    /// Why it could not be.
    pub why: String,
    /// The ranks that did not come to where all had to meet, in order; empty where something else is the reason.
    pub missing: Vec<usize>,
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind())
    }
}

impl Error {
    /// An argument that cannot be accepted.
    pub fn usage(
        call: impl Into<&'static str>,
        argument: &'static str,
        value: impl fmt::Display,
        expected: impl Into<String>,
    ) -> Error {
        let (call, value, expected) = (call.into(), value.to_string(), expected.into());
        Error::Usage(Box::new(Usage { call, argument, value, expected }))
    }

    /// A rank that can no longer be worked with.
    pub fn peer(rank: usize, reason: PeerReason, detail: impl Into<String>) -> Error {
        Error::Peer(Box::new(Peer { rank, others: Vec::new(), reason, detail: detail.into() }))
    }

    /// The end of a group, caused by `cause`.
    pub fn aborted_by(cause: Error) -> Error {
        match cause {
            Error::Aborted(_) => cause,
            first => Error::Aborted(Box::new(Aborted { why: first.to_string(), cause: Some(Arc::new(first)) })),
        }
    }

    /// The end of a group by choice.
    pub fn aborted(why: impl Into<String>) -> Error {
        Error::Aborted(Box::new(Aborted { why: why.into(), cause: None }))
    }

    /// Something the environment lacks.
    pub fn setup(what: impl Into<String>, why: impl fmt::Display) -> Error {
        Error::absent(what, why, Vec::new())
    }

    /// Ranks that did not come to where all had to meet.
    pub fn absent(what: impl Into<String>, why: impl fmt::Display, missing: Vec<usize>) -> Error {
        Error::Setup(Box::new(Setup { what: what.into(), why: why.to_string(), missing }))
    }

    /// Which of the seven kinds this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Usage(_) => ErrorKind::Usage,
            Error::Desync(_) => ErrorKind::Desync,
            Error::Peer(_) => ErrorKind::Peer,
            Error::Timeout(_) => ErrorKind::Timeout,
            Error::Aborted(_) => ErrorKind::Aborted,
            Error::Device(_) => ErrorKind::Device,
            Error::Setup(_) => ErrorKind::Setup,
        }
    }

    /// The same as whoever meets it later reports it: that the group was ended by it, unless the group goes on.
    pub fn in_its_wake(self) -> Error {
        match self {
            Error::Desync(_) => self,
            first => Error::aborted_by(first),
        }
    }

    /// Whether it concerns one rank's call alone, and nothing has moved.
    pub fn is_private(&self) -> bool {
        match self {
            Error::Usage(_) => true,
            Error::Desync(desync) => !desync.moved,
            _ => false,
        }
    }

    /// The ranks that this error, or what it was caused by, makes out as lost: those to go on without. None of a deadlock, where each waits
    /// for the next: there the order of their calls is to be mended. By their numbers in the world, as all
    /// ranks that an error names; [`rank_of`](crate::Group::rank_of) tells which they are in the group.
    pub fn culprits(&self) -> Vec<usize> {
        match self {
            Error::Peer(peer) => peer.ranks().collect(),
            Error::Timeout(timeout) => {
                let others = timeout.stuck.iter().filter(|stuck| stuck.on != Waiting::Working);
                let mut ranks: Vec<usize> = others.map(|stuck| stuck.peer).collect();
                if let Chain::Beyond { ranks: beyond, .. } = &timeout.chain {
                    ranks.extend(beyond);
                }
                ranks.sort_unstable();
                ranks.dedup();
                ranks
            }
            Error::Aborted(aborted) => aborted.cause.as_ref().map(|cause| cause.culprits()).unwrap_or_default(),
            Error::Setup(setup) => setup.missing.clone(),
            _ => vec![],
        }
    }

    /// What is still usable.
    pub fn scope(&self) -> Scope {
        match self {
            Error::Usage(_) | Error::Desync(_) => Scope::Call,
            Error::Peer(_) | Error::Timeout(_) | Error::Aborted(_) => Scope::Group,
            Error::Device(device) if !device.sticky => Scope::Group,
            Error::Setup(setup) if !setup.missing.is_empty() => Scope::Group,
            Error::Device(_) | Error::Setup(_) => Scope::Process,
        }
    }
}

impl Scope {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Call => "call",
            Scope::Group => "group",
            Scope::Process => "process",
        }
    }
}

impl Stuck {
    /// That a peer is waited for, and nothing more is known.
    pub fn unknown(peer: usize) -> Stuck {
        Stuck { peer, on: Waiting::Unknown }
    }
}

impl Peer {
    /// All that were lost, in order.
    pub fn ranks(&self) -> impl Iterator<Item = usize> + '_ {
        iter::once(self.rank).chain(self.others.iter().copied())
    }

    /// The same of these ranks too.
    #[must_use]
    pub fn and(mut self, ranks: impl IntoIterator<Item = usize>) -> Peer {
        let mut all: Vec<usize> = self.ranks().chain(ranks).collect();
        all.sort_unstable();
        all.dedup();
        self.others = all.split_off(1);
        self.rank = all[0];
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_scope_and_names_the_culprit() {
        let usage = Error::usage(OpKind::Broadcast, "root", 7, "must be below the world size 4");
        assert_eq!(usage.to_string(), "broadcast: root is 7, must be below the world size 4");
        assert_eq!(usage.scope(), Scope::Call);

        let dead = Error::peer(3, PeerReason::Dead, "connection closed");
        assert_eq!(dead.to_string(), "rank 3 is dead: connection closed");
        assert_eq!(dead.scope(), Scope::Group);
        assert_eq!(format!("{dead:?}"), "Peer: rank 3 is dead: connection closed", "as `main` and `unwrap` show it");

        let (many, few) = ([6, 5, 9, 4, 3], [1]);
        let Error::Peer(peer) = dead.clone() else { panic!("a peer") };
        assert_eq!(peer.clone().and(few).to_string(), "ranks 1 and 3 are dead: connection closed");
        assert_eq!(peer.clone().and([4, 5]).to_string(), "ranks 3-5 are dead: connection closed");
        let all = peer.and(many).and(few).and(few);
        assert_eq!(all.to_string(), "ranks 1, 3-6 and 9 are dead: connection closed");
        assert!(all.ranks().eq([1, 3, 4, 5, 6, 9]));

        let aborted = Error::aborted_by(dead.clone());
        assert_eq!(aborted.to_string(), "group aborted: rank 3 is dead: connection closed");
        assert_eq!(Error::aborted_by(aborted.clone()), aborted);
        assert_eq!(Error::setup("store", "no route").scope(), Scope::Process);

        let beyond = Chain::Beyond { path: "rank 1, which waits in group \"rows\" for".to_owned(), ranks: vec![6, 4] };
        let waits = |chain| {
            let (op, after, stuck) = (OpKind::Recv, Duration::from_secs(3), vec![]);
            Error::Timeout(Box::new(Timeout { op, sequence: 2, after, stuck, chain }))
        };
        assert_eq!(waits(beyond.clone()).culprits(), [4, 6]);
        let told = "recv (operation 2) not finished after 3s; waiting for rank 1, which waits in group \"rows\" for rank 6, rank 4";
        assert_eq!(waits(beyond).to_string(), told);
        assert_eq!(waits(Chain::Circle("rank 1, which waits for rank 0".to_owned())).culprits(), []);

        let absent = Error::absent("world", "rank 2 did not come", vec![2]);
        assert_eq!(absent.to_string(), "world: rank 2 did not come");
        assert_eq!(absent.scope(), Scope::Group);
        assert!(matches!(absent, Error::Setup(setup) if setup.missing == [2]));
    }

    #[test]
    fn a_timeout_lists_whom_it_waited_for() {
        let stuck = vec![Stuck { peer: 2, on: Waiting::Giving }, Stuck { peer: 5, on: Waiting::Taking }];
        let (after, chain) = (Duration::from_secs(3), Chain::Direct);
        let timeout = Timeout { op: OpKind::AllReduce, sequence: 9, after, stuck, chain };
        let begin = "all_reduce (operation 9) not finished after 3s; waiting for";
        assert_eq!(timeout.to_string(), format!("{begin} rank 2 to give data, rank 5 to take data"));
        let (stuck, chain) = (vec![Stuck::unknown(3)], Chain::Through("rank 2, which waits for".to_owned()));
        let timeout = Timeout { stuck, chain, ..timeout };
        assert_eq!(timeout.to_string(), format!("{begin} rank 2, which waits for rank 3"));
        let working = Stuck { peer: 1, on: Waiting::Working };
        let (stuck, chain) = (vec![working], Chain::Direct);
        let working = Timeout { stuck, chain, ..timeout.clone() };
        assert_eq!(working.to_string(), format!("{begin} rank 1, which was still at work"));
        assert!(Error::Timeout(Box::new(working)).culprits().is_empty());
        let circle = Chain::Circle("rank 2, which waits for rank 0".to_owned());
        let timeout = Timeout { chain: circle, ..timeout };
        assert_eq!(timeout.to_string(), format!("{begin} rank 2, which waits for rank 0: a deadlock"));
    }

    #[test]
    fn who_never_came_is_told_with_its_last_call() {
        let stuck = |last| Stuck { peer: 1, on: Waiting::Coming { last } }.to_string();
        assert_eq!(stuck(None), "rank 1, which has called nothing yet");
        let last = |site: &str| Last { op: OpKind::Barrier, sequence: 8, site: site.to_owned() };
        assert_eq!(stuck(Some(last(""))), "rank 1, whose last was barrier (operation 8)");
        let told = "rank 1, whose last was barrier (operation 8, called at src/train.rs:7:9)";
        assert_eq!(stuck(Some(last("src/train.rs:7:9"))), told);
    }

    #[test]
    fn an_error_is_small() {
        assert!(size_of::<Error>() <= 16);
    }
}
