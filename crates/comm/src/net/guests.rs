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
    /// When it began to speak, if it has.
    spoke: Option<Instant>,
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
        let until = inside.silent().map_or(now + SILENCE, |silent| inside.waiting[silent].yields());
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
        inside.waiting.push(Guest { number, socket, since: now, spoke: None });
        number
    }

    /// One begins to speak.
    pub(super) fn heard(&self, number: u64, now: Instant) {
        if let Some(guest) = self.inside().waiting.iter_mut().find(|guest| guest.number == number) {
            guest.spoke = Some(now);
        }
    }

    /// One is gone, or has said who it is. Says whether it was still here: it may have been sent away already.
    pub(super) fn leave(&self, number: u64) -> bool {
        let mut inside = self.inside();
        let before = inside.waiting.len();
        inside.waiting.retain(|guest| guest.number != number);
        inside.waiting.len() < before
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
    /// Who is the first to make room of those that are waited for, not they for us.
    fn silent(&self) -> Option<usize> {
        let mut order: Vec<usize> = (0..self.waiting.len()).collect();
        order.sort_by_key(|&guest| self.waiting[guest].yields());
        order.into_iter().find(|&guest| !self.waiting[guest].socket.has_input())
    }
}

impl Guest {
    /// From when on it makes room for another.
    fn yields(&self) -> Instant {
        self.spoke.map_or(self.since + SILENCE, |spoke| spoke + GRACE)
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
/// How long one is left in peace that has said nothing, however many come behind it. The first words of a rank come right behind
/// its connection, so that it is strangers who are that silent, and they may be many: it costs them nothing.
const SILENCE: Duration = Duration::from_millis(20);
/// The same from its first words on. The others that a rank has to say take as long as the way is, and its host is busy.
const GRACE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::net::socket::tests::pair;

    /// A full doorway: behind these two there is somebody else again and again, who says nothing.
    fn crowd(first: [&Arc<Socket>; 2], others: &Arc<Socket>, now: Instant) -> (Guests, [u64; 2]) {
        let guests = Guests::new();
        let numbers = first.map(|socket| guests.enter(Arc::clone(socket), now));
        for _ in numbers.len()..MOST {
            assert_eq!(guests.full_until(now), None);
            guests.enter(Arc::clone(others), now);
        }
        (guests, numbers)
    }

    #[test]
    fn who_says_nothing_makes_room_soon_but_not_at_once() {
        let ((mut first, one), (_second, two), (_others, rest)) = (pair(), pair(), pair());
        let start = Instant::now();
        let (guests, numbers) = crowd([&one, &two], &rest, start);
        let later = start + Duration::from_millis(20);
        assert_eq!(guests.full_until(start), Some(later));
        assert_eq!(guests.full_until(later), None);
        guests.enter(Arc::clone(&rest), later);
        assert_eq!(first.read(&mut [0]).expect("an end"), 0);
        assert_eq!(numbers.map(|number| guests.leave(number)), [false, true]);
    }

    #[test]
    fn who_has_begun_to_speak_is_left_in_peace_for_longer() {
        let ((_first, one), (mut second, two), (_others, rest)) = (pair(), pair(), pair());
        let start = Instant::now();
        let (guests, numbers) = crowd([&one, &two], &rest, start);
        guests.heard(numbers[0], start);
        guests.enter(Arc::clone(&rest), start + SILENCE);
        assert_eq!(second.read(&mut [0]).expect("an end"), 0);
        assert_eq!(numbers.map(|number| guests.leave(number)), [true, false]);
    }

    #[test]
    fn where_all_speak_nobody_makes_room_before_its_time() {
        let ((_first, one), (_second, two), (_others, rest)) = (pair(), pair(), pair());
        let start = Instant::now();
        let (guests, numbers) = crowd([&one, &two], &rest, start);
        // The others are numbered behind them.
        (numbers[0]..numbers[0] + MOST as u64).for_each(|number| guests.heard(number, start + SILENCE));
        assert_eq!(guests.full_until(start + SILENCE), Some(start + SILENCE + GRACE));
        assert_eq!(guests.full_until(start + SILENCE + GRACE), None);
    }
}
