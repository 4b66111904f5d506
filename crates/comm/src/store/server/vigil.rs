//! Waiting for events. While they come in quick succession the server looks again for a while before it sleeps: whoever
//! speaks to a sleeping server pays for waking it, and has its answer later. A server with a job key does not: the clerk
//! needs the processor, and a thread that spent its share on looking has its turn later.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Registry};

/// Where events come from, and how they came lately.
#[derive(Debug)]
pub(super) struct Vigil {
    poll: Poll,
    /// When events came last, and whether they came soon after those before.
    came: Instant,
    brisk: bool,
    /// Whether it looks again at all.
    lingers: bool,
}

impl Vigil {
    pub(super) fn new(poll: Poll, now: Instant, lingers: bool) -> Vigil {
        Vigil { poll, came: now, brisk: false, lingers }
    }

    pub(super) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Fills `events` with what came, waiting for it at most this long. Signals may end the wait early.
    pub(super) fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<Instant> {
        let may_linger = self.brisk && timeout.is_none_or(|timeout| timeout > LINGER);
        if !(may_linger && self.linger(events)?) {
            self.look(events, timeout)?;
        }
        let now = Instant::now();
        if !events.is_empty() {
            self.note(now);
        }
        Ok(now)
    }

    /// Looks for a while without sleeping; whether anything came.
    fn linger(&mut self, events: &mut Events) -> io::Result<bool> {
        while self.came.elapsed() < LINGER {
            self.look(events, Some(Duration::ZERO))?;
            if !events.is_empty() {
                return Ok(true);
            }
            // The processor belongs to whoever else wants it.
            rustix::thread::sched_yield();
        }
        Ok(false)
    }

    fn note(&mut self, now: Instant) {
        self.brisk = self.lingers && now - self.came < LINGER;
        self.came = now;
    }

    fn look(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            polled => polled,
        }
    }
}

/// How soon after the last events the next are awaited awake.
const LINGER: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use mio::{Token, Waker};

    use super::*;

    #[test]
    fn only_events_in_quick_succession_are_awaited_awake() {
        let start = Instant::now();
        let mut vigil = Vigil::new(Poll::new().unwrap(), start, true);
        for (after, brisk) in [(1000, false), (1001, true), (1150, true), (1350, false), (1351, true)] {
            vigil.note(start + Duration::from_micros(after));
            assert_eq!(vigil.brisk, brisk, "after {after} us");
        }
    }

    #[test]
    fn a_wait_ends_by_an_event_or_in_time() {
        let mut vigil = Vigil::new(Poll::new().unwrap(), Instant::now(), true);
        let waker = Waker::new(vigil.registry(), Token(7)).unwrap();
        let mut events = Events::with_capacity(4);
        for brisk in [false, true] {
            waker.wake().unwrap();
            vigil.wait(&mut events, None).unwrap();
            assert_eq!(events.iter().map(|event| event.token()).collect::<Vec<_>>(), [Token(7)]);
            vigil.brisk = brisk;
            let (began, timeout) = (Instant::now(), Duration::from_millis(2));
            let now = vigil.wait(&mut events, Some(timeout)).unwrap();
            assert!(events.is_empty() && now - began >= timeout);
            vigil.brisk = brisk;
            vigil.wait(&mut events, Some(Duration::ZERO)).unwrap();
            assert!(events.is_empty());
        }
    }
}
