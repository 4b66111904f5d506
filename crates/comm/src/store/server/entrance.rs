//! How connections come in: as fast as newcomers are dealt with, and as long as there are descriptors.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use mio::{Registry, Token};

use super::counts::Rejection;
use super::ledger::Ledger;
use super::listener::{Listener, Visitor};
use super::newcomers::{Newcomers, Turn};
use super::socket::{Peer, Socket};
use crate::store::StoreAddress;

/// The listener with those who came through it and are not known yet.
#[derive(Debug)]
pub(super) struct Entrance {
    listener: Listener,
    newcomers: Newcomers,
    /// Whether there may be somebody at the door.
    knocked: bool,
    /// The door stays shut until then, because there were no descriptors.
    shut_until: Option<Instant>,
    /// There were none, and nobody made room for it yet.
    shortage: bool,
    next: usize,
    first: usize,
}

impl Entrance {
    /// Connections get tokens from `first` on, none twice.
    pub(super) fn new(listener: Listener, patience: Duration, first: usize) -> Entrance {
        let newcomers = Newcomers::new(patience);
        Entrance { listener, newcomers, knocked: true, shut_until: None, shortage: false, next: first, first }
    }

    pub(super) fn address(&self) -> &StoreAddress {
        self.listener.address()
    }

    /// How many were accepted so far.
    pub(super) fn accepted(&self) -> u64 {
        (self.next - self.first) as u64
    }

    pub(super) fn newcomers(&self) -> usize {
        self.newcomers.len()
    }

    /// Notes that somebody is at the door.
    pub(super) fn notice(&mut self) {
        self.knocked = true;
    }

    /// Notes that a connection has gone, and left its descriptor.
    pub(super) fn resume(&mut self) {
        self.shut_until = None;
    }

    /// Whether somebody can be let in now.
    pub(super) fn is_busy(&self, now: Instant) -> bool {
        self.knocked && self.is_open(now)
    }

    /// When time will bring about something here.
    pub(super) fn due(&self) -> Option<Instant> {
        let yields = self.newcomers.yields_at().filter(|_| self.knocked && self.newcomers.is_full());
        let opens = self.shut_until.filter(|_| self.knocked);
        [self.newcomers.due(), yields, opens].into_iter().flatten().min()
    }

    /// Who makes room for the one that came last, if there are too many now.
    pub(super) fn surplus(&self, now: Instant) -> Option<Token> {
        self.newcomers.yielding(now).filter(|_| self.newcomers.is_overfull())
    }

    pub(super) fn queued(&mut self, token: Token) {
        self.newcomers.queued(token);
    }

    pub(super) fn had_turn(&mut self, token: Token, turn: Turn, now: Instant) {
        self.newcomers.had_turn(token, turn, now);
    }

    pub(super) fn claimed(&mut self, token: Token) {
        self.newcomers.claimed(token);
    }

    pub(super) fn leave(&mut self, token: Token) {
        self.newcomers.leave(token);
    }

    pub(super) fn expired(&self, now: Instant) -> Vec<Token> {
        self.newcomers.expired(now)
    }

    /// Who makes room because descriptors ran out since this was asked last.
    pub(super) fn take_shortage(&mut self, now: Instant) -> Option<Token> {
        std::mem::take(&mut self.shortage).then(|| self.newcomers.yielding(now)).flatten()
    }

    /// Lets the next one in, registered with the system's events.
    pub(super) fn accept(
        &mut self,
        registry: &Registry,
        now: Instant,
        ledger: &mut Ledger,
    ) -> Option<(Token, Socket, Peer)> {
        while self.knocked && self.is_open(now) {
            match self.listener.accept() {
                Ok(Visitor::Guest(mut socket, peer)) => {
                    let token = Token(self.next);
                    self.next += 1;
                    match socket.register(registry, token) {
                        Ok(()) => self.newcomers.enter(token, now),
                        Err(error) => {
                            self.fail(&error, now, ledger);
                            continue;
                        }
                    }
                    return Some((token, socket, peer));
                }
                Ok(Visitor::Stranger(peer)) => ledger.reject(&peer, Rejection::Stranger, "", now),
                Err(error) => self.fail(&error, now, ledger),
            }
        }
        None
    }

    fn is_open(&self, now: Instant) -> bool {
        let has_room = !self.newcomers.is_full() || self.newcomers.yielding(now).is_some();
        has_room && self.shut_until.is_none_or(|until| until <= now)
    }

    fn fail(&mut self, error: &io::Error, now: Instant, ledger: &mut Ledger) {
        match error.kind() {
            ErrorKind::WouldBlock => self.knocked = false,
            ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
            // Above all the want of descriptors: whoever knocks stays in the kernel's queue for a while.
            _ => {
                self.shortage = true;
                self.shut_until = Some(now + SHUT);
                ledger.complain(now, &format_args!("takes no connections for {SHUT:?}: {error}"));
            }
        }
    }
}

/// How long the door stays shut when a connection cannot be accepted.
const SHUT: Duration = Duration::from_millis(50);
