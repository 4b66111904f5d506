//! An account as plain data, which travels as JSON.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// What one rank has done, and does now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Account {
    /// The number of the format: 1.
    pub format: u32,
    /// The job's name.
    pub job: String,
    /// The rank in the world.
    pub rank: usize,
    /// How many ranks the world has.
    pub world_size: usize,
    /// The rank's number on its host.
    pub local_rank: usize,
    /// The name of its host.
    pub host_name: String,
    /// Its process.
    pub pid: u32,
    /// Where it answers Prometheus.
    pub metrics: Option<SocketAddr>,
    /// The groups it is in, in the order in which they were formed.
    pub groups: Vec<GroupAccount>,
}

/// One group as one of its ranks knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GroupAccount {
    /// What it is called.
    pub name: String,
    /// Counts the groups that this rank was in.
    pub number: u64,
    /// Which life of the group this is.
    pub epoch: u32,
    /// Tells groups of one name and the same members apart; all its ranks have the same. Ranks of older versions do not say it.
    #[serde(default)]
    pub generation: Option<u64>,
    /// Its ranks in the world, in the order of their ranks in the group.
    pub members: Vec<usize>,
    /// Which way its bytes go.
    pub transport: String,
    /// When this was written down, by the group's own clock.
    pub now_ns: u64,
    /// What it has done, by kind; kinds that were never called are left out.
    pub kinds: Vec<KindAccount>,
    /// The operation that was called last.
    pub last: Option<Underway>,
    /// The collective that was called last, where it is remembered.
    pub last_collective: Option<Underway>,
    /// The number that the next collective will have.
    pub upcoming: Option<u32>,
    /// The oldest operation that has not ended, a collective where there is one.
    pub pending: Option<Underway>,
    /// The oldest message that has not ended.
    pub pending_message: Option<Underway>,
    /// The oldest that is waited for, a collective where there is one. Ranks of older versions do not say it.
    #[serde(default)]
    pub awaited: Option<Underway>,
}

/// All operations of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KindAccount {
    /// `all_reduce`, `send`, ...
    pub kind: String,
    /// How many were called.
    pub called: u64,
    /// How many of them have ended, well or not.
    pub ended: u64,
    /// How many have failed, by the kind of error: `timeout`, `peer`, ...
    pub failed: BTreeMap<String, u64>,
    /// Bytes that this rank gave to those that were called.
    pub input_bytes: u64,
    /// Bytes that it gets from them.
    pub output_bytes: u64,
    /// Nanoseconds that those that have ended waited for their turn on this rank.
    pub queued_ns: u64,
    /// Nanoseconds from their turn to their end: waiting for other ranks, moving bytes and joining them.
    pub busy_ns: u64,
    /// How many took how long from call to end: up to 512 ns, up to twice as long, and so on, the last without bound.
    pub durations: Vec<u64>,
}

/// One operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Underway {
    /// `all_reduce`, `send`, ...
    pub kind: String,
    /// The number among the collectives, the same on every rank, or among this rank's messages.
    pub sequence: u32,
    /// Whether it is a message between two ranks.
    pub is_message: bool,
    /// The root, or the peer of a message, by its rank in the group.
    pub peer: Option<usize>,
    /// How it stands: `queued`, `started`, `done` or `failed`.
    pub state: String,
    /// How long ago it was called.
    pub called_ns: u64,
    /// How long ago its turn came, where it has.
    pub started_ns: Option<u64>,
    /// Where in the program it was called.
    pub site: String,
    /// Whether it was begun ahead, and nobody waits for it yet. Ranks of older versions do not say it.
    #[serde(default)]
    pub is_ahead: bool,
}

impl GroupAccount {
    /// The number of the collective that was called last, whether it is remembered or not.
    pub fn last_sequence(&self) -> Option<u32> {
        let last = self.last_collective.as_ref().map(|last| last.sequence);
        last.or_else(|| self.upcoming?.checked_sub(1))
    }

    /// How many operations have ended, well or not.
    pub fn ended(&self) -> u64 {
        self.sum(|kind| kind.ended)
    }

    /// How many have not ended.
    pub fn in_flight(&self) -> u64 {
        self.sum(KindAccount::in_flight)
    }

    /// How long ago the oldest operation was called that has not ended; 0 where all have.
    pub fn oldest_ns(&self) -> u64 {
        let pending = self.pending.iter().chain(&self.pending_message);
        pending.map(|pending| pending.called_ns).max().unwrap_or(0)
    }

    /// How many have failed.
    pub fn failed(&self) -> u64 {
        self.sum(|kind| kind.failed.values().copied().fold(0, u64::saturating_add))
    }

    /// Bytes that this rank gave and got.
    pub fn bytes(&self) -> u64 {
        self.sum(|kind| kind.input_bytes.saturating_add(kind.output_bytes))
    }

    fn sum(&self, of: impl Fn(&KindAccount) -> u64) -> u64 {
        self.kinds.iter().map(of).fold(0, u64::saturating_add)
    }
}

impl KindAccount {
    /// How many have not ended.
    pub fn in_flight(&self) -> u64 {
        self.called.saturating_sub(self.ended)
    }
}

/// The number of the format. A reader refuses a greater one, and passes over keys that it does not know.
pub(crate) const FORMAT: u32 = 1;
