//! The control connection to one peer: messages in and out without waiting, and what is known of the peer's end.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_core::PeerReason;

use super::beacon::Beacon;
use super::message::Message;
use crate::net::greeting::Line;
use crate::net::socket::{Found, Socket};
use crate::net::standing::Standing;
use crate::waits;

/// One peer, as the keeper sees it.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) rank: usize,
    pub(super) line: Line,
    /// The sockets of its links.
    pub(super) data: Vec<Arc<Socket>>,
    pub(super) standing: Arc<Standing>,
    /// What came and has not been opened yet, and what has been, of which so much was heard.
    sealed: Vec<u8>,
    inbox: Vec<u8>,
    heard_of_inbox: usize,
    outbox: Vec<u8>,
    /// How many of the rank's collectives it was told of, and what of a wait.
    pub(super) told: u64,
    pub(super) told_wait: [u64; waits::WORDS],
    pub(super) beacon: Beacon,
    /// When it last said anything that only it can have said, and when it did on the connection.
    pub(super) heard: Instant,
    pub(super) spoke: Instant,
    /// It has said of what the group might have failed.
    pub(super) has_proposed: bool,
    /// The connection has ended, or cannot be used any more.
    pub(super) is_gone: bool,
    /// It said that it leaves, and whether it failed.
    pub(super) leaving: Option<bool>,
    /// It was told that all it sent has arrived.
    pub(super) was_told: bool,
    /// It said that all we sent has arrived.
    pub(super) has_all: bool,
}

/// Why a peer can no longer be heard.
pub(super) type Loss = (PeerReason, String);

impl Peer {
    pub(super) fn new(rank: usize, line: Line, data: Vec<Arc<Socket>>, standing: Arc<Standing>) -> Peer {
        let (sealed, inbox, outbox) = (vec![], vec![], vec![]);
        let (heard, beacon) = (Instant::now(), Beacon::beside(&line.socket));
        Peer {
            rank,
            line,
            data,
            standing,
            sealed,
            inbox,
            heard_of_inbox: 0,
            outbox,
            told: 0,
            told_wait: [0; waits::WORDS],
            beacon,
            heard,
            spoke: heard,
            has_proposed: false,
            is_gone: false,
            leaving: None,
            was_told: false,
            has_all: false,
        }
    }

    /// Whether it is one that should be heard every now and then.
    pub(super) fn is_expected(&self) -> bool {
        !self.is_gone && self.leaving.is_none() && !self.standing.is_lost()
    }

    /// Whether nothing came over its connection for long enough that the way may be blocked.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        !self.is_gone && self.leaving.is_none() && now.saturating_duration_since(self.spoke) >= QUIET
    }

    /// Whether it is one that would answer now, as far as can be known.
    pub(super) fn is_near(&self, now: Instant) -> bool {
        self.is_expected() && now.saturating_duration_since(self.heard) < DOUBT
    }

    /// Sends a message, as soon as there is room.
    pub(super) fn say(&mut self, message: &Message) {
        if self.is_gone {
            return;
        }
        // It fails when 2^64 records were sent.
        self.is_gone = self.line.tunnel.seal(&message.encode(), &mut self.outbox).is_err();
        self.flush();
    }

    /// Sends what waits for room. That the peer takes nothing any more is seen when it is read.
    pub(super) fn flush(&mut self) {
        while !self.outbox.is_empty() {
            match self.line.socket.try_send(&[IoSlice::new(&self.outbox)]) {
                Found::Bytes(len) => drop(self.outbox.drain(..len)),
                Found::Nothing => return,
                Found::End => self.outbox.clear(),
            }
        }
    }

    /// Whether all that was said is on its way.
    pub(super) fn is_flushed(&self) -> bool {
        self.outbox.is_empty()
    }

    /// The next message that has come whole.
    pub(super) fn hear(&mut self) -> Result<Option<Message>, Loss> {
        let corrupt = |detail| (PeerReason::Corrupt, detail);
        loop {
            if self.is_gone {
                return Ok(None);
            }
            if let Some((message, len)) = Message::read(&self.inbox[self.heard_of_inbox..]).map_err(corrupt)? {
                self.heard_of_inbox += len;
                return Ok(Some(message));
            }
            self.inbox.drain(..std::mem::take(&mut self.heard_of_inbox));
            let mut chunk = [0; CHUNK];
            match self.line.socket.try_recv(&mut chunk) {
                Found::Nothing => return Ok(None),
                Found::End => return Err((PeerReason::Dead, "connection closed".to_owned())),
                Found::Bytes(len) => {
                    self.sealed.extend(&chunk[..len]);
                    let opened = self.line.tunnel.open(&self.sealed, &mut self.inbox);
                    let opened = opened.map_err(|error| corrupt(error.to_string()))?;
                    self.sealed.drain(..opened);
                    // Whoever is on the way can send bytes in the name of a peer that is dead, but no record.
                    if opened > 0 {
                        self.heard = Instant::now();
                        self.spoke = self.heard;
                    }
                }
            }
        }
    }

    /// Tells a peer that leaves when all that it sent has arrived.
    pub(super) fn tell_when_all_has_come(&mut self) {
        let Some(failed) = self.leaving else { return };
        if !self.was_told && (failed || self.data.iter().all(|socket| socket.has_ended())) {
            self.was_told = true;
            self.say(&Message::Arrived);
        }
    }

    /// Takes what still comes over the links, which nobody reads any more, so that the peer can end. Says whether that was all
    /// for now.
    pub(super) fn discard(&self) -> bool {
        let mut chunk = [0; DISCARDED];
        self.data.iter().all(|socket| (0..CHUNKS).any(|_| !matches!(socket.try_recv(&mut chunk), Found::Bytes(_))))
    }

    /// Whether a rank that leaves need not wait for this peer.
    pub(super) fn is_settled(&self) -> bool {
        let owed = self.leaving.is_some() && !self.was_told;
        self.is_gone || self.standing.is_lost() || (self.has_all && !owed && self.is_flushed())
    }
}

/// Whoever is not cut off has said something within this time.
const QUIET: Duration = Duration::from_millis(400);
/// Who has said nothing for so long, and should have said several things, may be cut off.
const DOUBT: Duration = Duration::from_secs(1);
const CHUNK: usize = 4 << 10;
const DISCARDED: usize = 64 << 10;
/// How many of those are taken from one link before others have their turn.
const CHUNKS: usize = 64;
