//! Connections that have not said yet who they are: how many there may be, how long, and who has to make room.

use std::time::{Duration, Instant};

use mio::Token;

use crate::moment;

/// Those in the doorway. They are few, so they are looked through one by one.
#[derive(Debug)]
pub(super) struct Newcomers {
    /// How long one may take to say who it is.
    patience: Duration,
    waiting: Vec<Newcomer>,
}

#[derive(Debug)]
struct Newcomer {
    token: Token,
    /// When it has to have said who it is.
    until: Instant,
    /// When it was last heard.
    heard: Instant,
    /// It waits for us, not we for it.
    has_claimed: bool,
}

impl Newcomers {
    pub(super) fn new(patience: Duration) -> Newcomers {
        Newcomers { patience, waiting: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= MOST
    }

    pub(super) fn is_overfull(&self) -> bool {
        self.waiting.len() > MOST
    }

    pub(super) fn enter(&mut self, token: Token, now: Instant) {
        self.waiting.push(Newcomer { token, until: moment::later(now, self.patience), heard: now, has_claimed: false });
    }

    /// Notes that something was heard from `token`.
    pub(super) fn heard(&mut self, token: Token, now: Instant) {
        self.waiting.iter_mut().filter(|one| one.token == token).for_each(|one| one.heard = now);
    }

    /// Notes that `token` has said who it is, and that it is no fault of its own if nothing is heard of it.
    pub(super) fn claimed(&mut self, token: Token) {
        self.waiting.iter_mut().filter(|one| one.token == token).for_each(|one| one.has_claimed = true);
    }

    /// Notes that `token` is known by now, or gone.
    pub(super) fn leave(&mut self, token: Token) {
        self.waiting.retain(|one| one.token != token);
    }

    /// Who makes room for another: the one that has been silent longest, unless it came just now. Those of a whole job
    /// that joins at once do not push each other out this way.
    pub(super) fn yielding(&self, now: Instant) -> Option<Token> {
        self.silent_longest().filter(|one| one.heard + GRACE <= now).map(|one| one.token)
    }

    /// When somebody will have been silent long enough to make room.
    pub(super) fn yields_at(&self) -> Option<Instant> {
        self.silent_longest().map(|one| one.heard + GRACE)
    }

    /// Those whose time is over.
    pub(super) fn expired(&self, now: Instant) -> Vec<Token> {
        self.waiting.iter().filter(|one| one.until <= now).map(|one| one.token).collect()
    }

    /// When the first one's time is over.
    pub(super) fn due(&self) -> Option<Instant> {
        self.waiting.iter().map(|one| one.until).min()
    }

    fn silent_longest(&self) -> Option<&Newcomer> {
        self.waiting.iter().filter(|one| !one.has_claimed).min_by_key(|one| one.heard)
    }
}

/// The most that may be in the doorway at once, besides the one for whom another makes room.
const MOST: usize = 256;
/// How long one is left in peace after it was heard, however many come behind it.
const GRACE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);

    #[test]
    fn the_one_silent_longest_makes_room_and_nobody_too_early() {
        let start = Instant::now();
        let mut newcomers = Newcomers::new(PATIENCE);
        for number in 0..MOST {
            assert!(!newcomers.is_full());
            newcomers.enter(Token(number), start + Duration::from_micros(number as u64));
        }
        assert!(newcomers.is_full());
        assert_eq!(newcomers.yielding(start), None);
        assert_eq!(newcomers.yields_at(), Some(start + GRACE));
        newcomers.heard(Token(0), start + GRACE);
        let later = start + 2 * GRACE;
        assert_eq!(newcomers.yielding(later), Some(Token(1)));
        newcomers.leave(Token(1));
        assert_eq!((newcomers.yielding(later), newcomers.is_full()), (Some(Token(2)), false));
        newcomers.claimed(Token(2));
        assert_eq!(newcomers.yielding(later), Some(Token(3)));
    }

    #[test]
    fn talking_does_not_buy_more_time() {
        let start = Instant::now();
        let mut newcomers = Newcomers::new(PATIENCE);
        newcomers.enter(Token(1), start);
        newcomers.enter(Token(2), start + PATIENCE / 2);
        newcomers.heard(Token(1), start + PATIENCE / 2);
        assert_eq!(newcomers.due(), Some(start + PATIENCE));
        assert!(newcomers.expired(start + PATIENCE / 2).is_empty());
        assert_eq!(newcomers.expired(start + PATIENCE), [Token(1)]);
        assert_eq!(newcomers.len(), 2);
    }
}
