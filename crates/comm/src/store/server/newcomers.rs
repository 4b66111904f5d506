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
    /// When it came, or last took a step.
    stepped: Instant,
    /// It stands in the queue for its turn: what it said may lie in its socket.
    is_queued: bool,
    /// What it said at its last turn was no step yet.
    dawdles: bool,
    /// It said who it is, and has no answer yet.
    has_claimed: bool,
}

/// What came of a newcomer's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// There was nothing to hear.
    Nothing,
    /// Something was heard, but it is not enough to go on with.
    Words,
    /// It has come further: said hello, or who it is.
    Step,
}

impl Turn {
    pub(super) fn of(has_stepped: bool, was_heard: bool) -> Turn {
        match (has_stepped, was_heard) {
            (true, _) => Turn::Step,
            (false, true) => Turn::Words,
            (false, false) => Turn::Nothing,
        }
    }
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
        let until = moment::later(now, self.patience);
        let newcomer = Newcomer { token, until, stepped: now, is_queued: false, dawdles: false, has_claimed: false };
        self.waiting.push(newcomer);
    }

    /// Notes that `token` waits for its turn.
    pub(super) fn queued(&mut self, token: Token) {
        self.of(token, |one| one.is_queued = true);
    }

    /// Notes what came of the turn of `token`.
    pub(super) fn had_turn(&mut self, token: Token, turn: Turn, now: Instant) {
        self.of(token, |one| {
            one.is_queued = false;
            match turn {
                Turn::Nothing => {}
                Turn::Words => one.dawdles = true,
                Turn::Step => (one.dawdles, one.stepped) = (false, now),
            }
        });
    }

    /// Notes that `token` has said who it is, and that it is no fault of its own if nothing is heard of it.
    pub(super) fn claimed(&mut self, token: Token) {
        self.of(token, |one| one.has_claimed = true);
    }

    /// Notes that `token` is known by now, or gone.
    pub(super) fn leave(&mut self, token: Token) {
        self.waiting.retain(|one| one.token != token);
    }

    /// Who makes room for another: of those that we wait for the one that has been where it is longest, unless it came
    /// there just now. Those of a whole job that joins at once do not push each other out this way.
    pub(super) fn yielding(&self, now: Instant) -> Option<Token> {
        self.slowest().filter(|one| one.stepped + GRACE <= now).map(|one| one.token)
    }

    /// When somebody will have been slow enough to make room.
    pub(super) fn yields_at(&self) -> Option<Instant> {
        self.slowest().map(|one| one.stepped + GRACE)
    }

    /// Those whose time is over, unless it is we who let them wait.
    pub(super) fn expired(&self, now: Instant) -> Vec<Token> {
        self.awaited().filter(|one| one.until <= now).map(|one| one.token).collect()
    }

    /// When the first one's time is over.
    pub(super) fn due(&self) -> Option<Instant> {
        self.awaited().map(|one| one.until).min()
    }

    fn slowest(&self) -> Option<&Newcomer> {
        self.awaited().min_by_key(|one| one.stepped)
    }

    /// Those that we wait for, rather than they for us.
    fn awaited(&self) -> impl Iterator<Item = &Newcomer> {
        self.waiting.iter().filter(|one| !(one.has_claimed || one.is_queued && !one.dawdles))
    }

    fn of(&mut self, token: Token, note: impl FnOnce(&mut Newcomer)) {
        if let Some(one) = self.waiting.iter_mut().find(|one| one.token == token) {
            note(one);
        }
    }
}

/// The most that may be in the doorway at once, besides the one for whom another makes room.
const MOST: usize = 256;
/// How long one is left in peace after it came a step further, however many come behind it.
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
        newcomers.had_turn(Token(0), Turn::Step, start + GRACE);
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
        newcomers.had_turn(Token(1), Turn::Step, start + PATIENCE / 2);
        assert_eq!(newcomers.due(), Some(start + PATIENCE));
        assert!(newcomers.expired(start + PATIENCE / 2).is_empty());
        assert_eq!(newcomers.expired(start + PATIENCE), [Token(1)]);
        assert_eq!(newcomers.len(), 2);
    }

    #[test]
    fn who_waits_for_its_turn_is_not_taken_for_silent() {
        let start = Instant::now();
        let later = start + PATIENCE;
        let mut newcomers = Newcomers::new(PATIENCE);
        for token in [Token(1), Token(2), Token(3)] {
            newcomers.enter(token, start);
            newcomers.queued(token);
        }
        assert_eq!((newcomers.yielding(later), newcomers.due()), (None, None));
        assert!(newcomers.expired(later).is_empty());
        newcomers.had_turn(Token(2), Turn::Nothing, later);
        assert_eq!((newcomers.yielding(later), newcomers.expired(later)), (Some(Token(2)), vec![Token(2)]));
        newcomers.queued(Token(2));
        assert_eq!(newcomers.yielding(later), None);
    }

    #[test]
    fn a_byte_now_and_then_is_no_step() {
        let start = Instant::now();
        let mut newcomers = Newcomers::new(PATIENCE);
        newcomers.enter(Token(1), start);
        newcomers.enter(Token(2), start + GRACE);
        for _ in 0..3 {
            newcomers.had_turn(Token(1), Turn::Words, start + GRACE);
            // There is always another byte of it to hear.
            newcomers.queued(Token(1));
        }
        assert_eq!(newcomers.yielding(start + GRACE), Some(Token(1)));
        newcomers.had_turn(Token(1), Turn::Step, start + 2 * GRACE);
        assert_eq!(newcomers.yielding(start + 2 * GRACE), Some(Token(2)));
    }

    #[test]
    fn who_waits_for_the_clerk_is_not_sent_away() {
        let start = Instant::now();
        let mut newcomers = Newcomers::new(PATIENCE);
        newcomers.enter(Token(1), start);
        newcomers.claimed(Token(1));
        assert!(newcomers.expired(start + PATIENCE).is_empty());
        assert_eq!((newcomers.due(), newcomers.yields_at()), (None, None));
    }
}
