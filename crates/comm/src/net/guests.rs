//! Callers that have not said yet who they are: how many there may be, who makes room for another, and how much is written of
//! those that are refused.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::socket::Socket;
use crate::journal::Journal;

/// Those in the doorway.
#[derive(Debug)]
pub(super) struct Guests {
    inside: Mutex<Inside>,
}

#[derive(Debug)]
struct Inside {
    /// In the order in which they came.
    waiting: Vec<Guest>,
    /// The number of the next.
    next: u64,
    journal: Journal,
}

#[derive(Debug)]
struct Guest {
    number: u64,
    socket: Arc<Socket>,
    since: Instant,
}

impl Guests {
    pub(super) fn new() -> Guests {
        let journal = Journal::new(Instant::now());
        Guests { inside: Mutex::new(Inside { waiting: vec![], next: 0, journal }) }
    }

    /// Until when nobody else can come in, where that is so.
    pub(super) fn full_until(&self, now: Instant) -> Option<Instant> {
        let inside = self.inside();
        if inside.waiting.len() < MOST {
            return None;
        }
        let until = inside.silent().map_or(now + GRACE, |silent| inside.waiting[silent].since + GRACE);
        Some(until).filter(|until| *until > now)
    }

    /// Another comes in, for whom one makes room that is silent. Returns the number by which it leaves.
    pub(super) fn enter(&self, socket: Arc<Socket>, now: Instant) -> u64 {
        let mut inside = self.inside();
        if inside.waiting.len() >= MOST
            && let Some(silent) = inside.silent()
        {
            inside.waiting.remove(silent).socket.close();
        }
        inside.next += 1;
        let number = inside.next;
        inside.waiting.push(Guest { number, socket, since: now });
        number
    }

    /// One is gone, or has said who it is. It may have made room already.
    pub(super) fn leave(&self, number: u64) {
        self.inside().waiting.retain(|guest| guest.number != number);
    }

    /// Sends all away: nobody else is awaited.
    pub(super) fn send_away(&self) {
        let mut inside = self.inside();
        inside.waiting.drain(..).for_each(|guest| guest.socket.close());
        sum_up(inside.journal.withheld());
    }

    /// Writes a line into the log, unless there were many just now.
    pub(super) fn complain(&self, what: &dyn Display) {
        let (now, mut inside) = (Instant::now(), self.inside());
        sum_up(inside.journal.summary(now));
        if inside.journal.admits(now) {
            log::warn!("{what}");
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    /// Who is here longest of those that are waited for, not we for them.
    fn silent(&self) -> Option<usize> {
        self.waiting.iter().position(|guest| !guest.socket.has_input())
    }
}

/// Says how many lines were withheld.
fn sum_up(withheld: Option<u64>) {
    if let Some(withheld) = withheld {
        log::warn!("and {withheld} more connections were refused");
    }
}

/// The most that may be in the doorway at once.
pub(super) const MOST: usize = 128;
/// How long one is left in peace, however many come behind it. A rank says who it is at once, if its host is not too busy.
const GRACE: Duration = Duration::from_millis(500);
