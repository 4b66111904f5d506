//! What a server has seen and holds, in numbers; and the reasons for which it turns visitors away.

use std::collections::BTreeMap;
use std::fmt;

/// A server in numbers, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Connections whose clients are known.
    pub connections: usize,
    /// Connections that have not said yet who they are.
    pub newcomers: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Values and queues.
    pub entries: usize,
    /// What entries and waiting requests take, in bytes, as limits count it.
    pub byte_len: usize,
    /// Bytes of requests that have come in part.
    pub unread_byte_len: usize,
    /// Bytes of answers that clients have not taken yet. A value on its way to several counts for each.
    pub unsent_byte_len: usize,
    /// Connections that were accepted since the start.
    pub accepted: u64,
    /// Requests that were carried out, or wait.
    pub requests: u64,
    /// Connections that were turned away, by reason.
    pub rejected: BTreeMap<Rejection, u64>,
}

impl Counts {
    /// How many connections were turned away for this reason.
    pub fn rejected(&self, reason: Rejection) -> u64 {
        self.rejected.get(&reason).copied().unwrap_or(0)
    }
}

/// Why a connection was turned away or ended by the server. To the other side all of those before it proved the key look
/// the same: the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Rejection {
    /// What it said first is neither PyTorch's greeting nor ours.
    Garbage,
    /// It spoke another version of our protocol.
    Version,
    /// It came without a key to a server that has one, or with one to a server that has none.
    Mode,
    /// It could not prove the key.
    Key,
    /// Its hello says what cannot be.
    Hello,
    /// The server could not go on with it, for want of random bytes or of its own key.
    Fault,
    /// It did not say who it is in time.
    Silent,
    /// It made room for newer ones: too many came at once, or descriptors ran out.
    Crowded,
    /// It came over a Unix socket from another user.
    Stranger,
    /// It belongs to another job.
    Job,
    /// It belongs to another epoch.
    Epoch,
    /// It believes in a world of another size.
    World,
    /// It claimed a rank that the world does not have.
    Rank,
    /// It claimed a rank that belongs to another session.
    Taken,
    /// More ranks were taken already than a world without a size may have.
    Full,
    /// It broke the protocol, or asked PyTorch's way for something that has to be refused.
    Breach,
    /// It did not take its answers.
    Stalled,
    /// It sent parts of requests while the server had too many of these.
    Flood,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rejection::Garbage => "speaks no language of ours",
            Rejection::Version => "speaks another version",
            Rejection::Mode => "does not agree whether there is a key",
            Rejection::Key => "did not prove the key",
            Rejection::Hello => "said what cannot be",
            Rejection::Fault => "met a failure of the server",
            Rejection::Silent => "did not say in time who it is",
            Rejection::Crowded => "made room for others",
            Rejection::Stranger => "is another user",
            Rejection::Job => "belongs to another job",
            Rejection::Epoch => "belongs to another epoch",
            Rejection::World => "believes in another world size",
            Rejection::Rank => "claims a rank that is not in the world",
            Rejection::Taken => "claims a rank that is taken",
            Rejection::Full => "claims one rank too many",
            Rejection::Breach => "broke the protocol",
            Rejection::Stalled => "does not take its answers",
            Rejection::Flood => "sent too much that is unfinished",
        })
    }
}
