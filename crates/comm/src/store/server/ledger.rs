//! What the server keeps count of: who was turned away and why, and the bytes that are on their way in and out.

use std::collections::BTreeMap;
use std::time::Instant;

use phalanx_core::store::Limits;

use super::counts::Rejection;
use super::line::{Line, Load};
use super::socket::Peer;
use crate::journal::Journal;
use crate::store::StoreAddress;

/// Sums over all connections.
#[derive(Debug)]
pub(super) struct Ledger {
    /// What all lines hold.
    pub(super) load: Load,
    pub(super) rejected: BTreeMap<Rejection, u64>,
    journal: Journal,
    /// Where the server is, for its log.
    address: StoreAddress,
}

impl Ledger {
    pub(super) fn new(address: StoreAddress, now: Instant) -> Ledger {
        Ledger { load: Load::default(), rejected: BTreeMap::new(), journal: Journal::new(now), address }
    }

    /// Replaces what a line held before by what it holds now.
    pub(super) fn weigh(&mut self, before: Load, line: &Line) {
        self.load += line.load();
        self.load -= before;
    }

    /// Takes off what a line holds that is gone.
    pub(super) fn forget(&mut self, line: &Line) {
        self.load -= line.load();
    }

    /// Whether more has come in part than a server should keep.
    pub(super) fn is_flooded(&self, limits: &Limits) -> bool {
        self.load.unread > FLOOD.saturating_mul(limits.message_byte_len()).max(LEAST)
    }

    /// Whether so many answers were not taken that those who take none are to be ended, and nobody gets another before the
    /// last.
    pub(super) fn is_heavy(&self, limits: &Limits) -> bool {
        self.load.unsent > heavy(limits)
    }

    /// Whether answers that each are held for one client take more than a server should ever hold.
    pub(super) fn is_crammed(&self, limits: &Limits) -> bool {
        self.load.own > most(limits)
    }

    /// Counts a connection that is turned away, and says so in the log unless there was too much to say.
    pub(super) fn reject(&mut self, peer: &Peer, reason: Rejection, detail: &str, now: Instant) {
        *self.rejected.entry(reason).or_default() += 1;
        let colon = if detail.is_empty() { "" } else { ": " };
        self.complain(now, &format_args!("{peer} was turned away: it {reason}{colon}{detail}"));
    }

    /// Writes a line into the log, unless there were many just now.
    pub(super) fn complain(&mut self, now: Instant, what: &dyn std::fmt::Display) {
        if self.journal.admits(now) {
            // Keys and first bytes are others' words: whatever they are, a line stays a line.
            log::warn!("store server at {}: {}", self.address, what.to_string().replace(char::is_control, "?"));
        }
    }

    /// When a summary of withheld lines is due.
    pub(super) fn journal_due(&self) -> Option<Instant> {
        self.journal.due()
    }

    /// Says how many lines were withheld, once it is time.
    pub(super) fn summarise(&mut self, now: Instant) {
        if let Some(withheld) = self.journal.summary(now) {
            log::warn!("store server at {}: and {withheld} more lines like these", self.address);
        }
    }
}

/// The most that answers may take, in bytes, where what goes to several counts once.
pub(super) fn most(limits: &Limits) -> usize {
    2 * heavy(limits)
}

fn heavy(limits: &Limits) -> usize {
    HEAVY.saturating_mul(limits.message_byte_len()).clamp(LEAST, usize::MAX / 2)
}

/// How many of the longest messages may have come in part, over all connections.
const FLOOD: usize = 2;
/// How many of the longest answers may be on their way, each counted as often as it goes out.
const HEAVY: usize = 16;
/// What may be held in any case, in bytes: clients send requests ahead, however short these have to be.
const LEAST: usize = 64 << 20;
