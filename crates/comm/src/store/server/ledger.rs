//! What the server keeps count of: who was turned away and why, and the bytes that are on their way in and out.

use std::collections::BTreeMap;
use std::time::Instant;

use phalanx_core::store::Limits;

use super::counts::Rejection;
use super::line::Line;
use super::socket::Peer;
use crate::journal::Journal;

/// Sums over all connections.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Bytes that came in part.
    pub(super) unread: usize,
    /// Bytes that have not gone yet.
    pub(super) unsent: usize,
    pub(super) rejected: BTreeMap<Rejection, u64>,
    journal: Journal,
}

impl Ledger {
    pub(super) fn new(now: Instant) -> Ledger {
        Ledger { unread: 0, unsent: 0, rejected: BTreeMap::new(), journal: Journal::new(now) }
    }

    /// Replaces what a line held before by what it holds now.
    pub(super) fn weigh(&mut self, unread: usize, unsent: usize, line: &Line) {
        self.unread = self.unread + line.unread_byte_len() - unread;
        self.unsent = self.unsent + line.unsent_byte_len() - unsent;
    }

    /// Takes off what a line holds that is gone.
    pub(super) fn forget(&mut self, line: &Line) {
        self.unread -= line.unread_byte_len();
        self.unsent -= line.unsent_byte_len();
    }

    /// Whether more has come in part than a server should keep.
    pub(super) fn is_flooded(&self, limits: &Limits) -> bool {
        self.unread > FLOOD.saturating_mul(limits.message_byte_len()).max(LEAST)
    }

    /// Whether so many answers were not taken that those who take none are to be ended.
    pub(super) fn is_heavy(&self, limits: &Limits) -> bool {
        self.unsent > HEAVY.saturating_mul(limits.message_byte_len()).max(LEAST)
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
            log::warn!("store server: {}", what.to_string().replace(char::is_control, "?"));
        }
    }

    /// When a summary of withheld lines is due.
    pub(super) fn journal_due(&self) -> Option<Instant> {
        self.journal.due()
    }

    /// Says how many lines were withheld, once it is time.
    pub(super) fn summarise(&mut self, now: Instant) {
        if let Some(withheld) = self.journal.summary(now) {
            log::warn!("store server: and {withheld} more lines like these");
        }
    }
}

/// How many of the longest messages may have come in part, over all connections.
const FLOOD: usize = 2;
/// How many of the longest answers may be on their way, each counted as often as it goes out.
const HEAVY: usize = 16;
/// What may be held in any case, in bytes: clients send requests ahead, however short these have to be.
const LEAST: usize = 64 << 20;
