//! The first signal that asked for the end, and what those that follow it mean. Not what is done about them.

use std::time::{Duration, Instant};

/// The first signal that asked for the end, and when it came, once one has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interrupt(Option<(i32, Instant)>);

/// What a signal that asks for the end means beside those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    First,
    /// The first once more: GNU `timeout` signals its program and then its group, and systemd every process of a service.
    Same,
    /// Somebody will not wait any longer.
    Again,
}

impl Interrupt {
    /// Takes note of a signal that asks for the end.
    pub(crate) fn hear(&mut self, signal: i32, now: Instant) -> Wish {
        match self.0 {
            None => {
                self.0 = Some((signal, now));
                Wish::First
            }
            Some((_, first)) if now.saturating_duration_since(first) < AT_ONCE => Wish::Same,
            Some(_) => Wish::Again,
        }
    }

    /// The first one.
    pub(crate) fn signal(&self) -> Option<i32> {
        self.0.map(|(signal, _)| signal)
    }
}

/// Signals this close to the first were sent for one reason.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use signal_hook::consts::{SIGINT, SIGTERM};

    use super::*;

    #[test]
    fn what_comes_with_the_first_is_the_first_once_more() {
        let (mut interrupt, now) = (Interrupt::default(), Instant::now());
        assert_eq!(interrupt.signal(), None);
        assert_eq!(interrupt.hear(SIGINT, now), Wish::First);
        assert_eq!(interrupt.hear(SIGTERM, now), Wish::Same);
        assert_eq!(interrupt.hear(SIGINT, now + AT_ONCE / 2), Wish::Same);
        // Counted from the first, so that one who asks over and over is heard.
        assert_eq!(interrupt.hear(SIGTERM, now + AT_ONCE), Wish::Again);
        assert_eq!(interrupt.signal(), Some(SIGINT));
    }
}
