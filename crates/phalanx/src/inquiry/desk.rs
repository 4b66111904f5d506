//! The desk: one thread's turns between doors and visitors. It sleeps until somebody comes, and nobody can keep it busy for long.

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::door::{Door, Renewal};
use super::visitor::{Pages, Visitor};

/// Who is served, and through which doors they come.
pub(super) struct Desk {
    /// Hangs up when the desk is to close.
    end: UnixStream,
    doors: Vec<Door>,
    renewal: Option<Renewal>,
    visitors: VecDeque<Visitor>,
    /// Until when nobody is let in.
    shut_until: Option<Instant>,
    pages: Box<Pages>,
    /// How long a visit may take in all.
    patience: Duration,
}

impl Desk {
    pub(super) fn new(
        end: UnixStream,
        (doors, renewal): (Vec<Door>, Option<Renewal>),
        pages: Box<Pages>,
        patience: Duration,
    ) -> Desk {
        Desk { end, doors, renewal, visitors: VecDeque::new(), shut_until: None, pages, patience }
    }

    /// Serves until the end.
    pub(super) fn serve(mut self) {
        loop {
            match self.wait() {
                Ok(Some(ready)) => self.turn(&ready),
                Ok(None) => return,
                Err(error) => return log::warn!("nobody is told any more how this rank stands: {error}"),
            }
        }
    }

    /// Sleeps until something happens: whether to the place of the rank, to each door and then to each visitor; none at the end.
    fn wait(&mut self) -> io::Result<Option<Vec<bool>>> {
        let now = Instant::now();
        self.shut_until = self.shut_until.filter(|until| *until > now);
        let wanted = if self.shut_until.is_some() { PollFlags::empty() } else { PollFlags::IN };
        let mut waited: Vec<PollFd<'_>> = vec![PollFd::new(&self.end, PollFlags::IN)];
        waited.extend(self.renewal.iter().map(|renewal| PollFd::new(renewal, PollFlags::IN)));
        waited.extend(self.doors.iter().map(|door| PollFd::new(door, wanted)));
        waited.extend(self.visitors.iter().map(|visitor| PollFd::new(visitor, visitor.awaits())));
        let next = self.visitors.iter().map(Visitor::deadline).chain(self.shut_until).min();
        // A little later, so that it has passed.
        let pause = next.map(|next| next.saturating_duration_since(now) + Duration::from_millis(1));
        let pause = pause.and_then(|pause| Timespec::try_from(pause).ok());
        match poll(&mut waited, pause.as_ref()) {
            Err(rustix::io::Errno::INTR) => Ok(Some(vec![false; waited.len() - 1])),
            Err(error) => Err(error.into()),
            Ok(_) if !waited[0].revents().is_empty() => Ok(None),
            Ok(_) => Ok(Some(waited[1..].iter().map(|fd| !fd.revents().is_empty()).collect())),
        }
    }

    fn turn(&mut self, ready: &[bool]) {
        let (moved, ready) = ready.split_at(usize::from(self.renewal.is_some()));
        let (doors, visitors) = ready.split_at(self.doors.len());
        let now = Instant::now();
        let mut happened = visitors.iter();
        let pages = &*self.pages;
        self.visitors.retain_mut(|visitor| {
            let happened = happened.next().is_some_and(|happened| *happened);
            (!happened || visitor.proceed(pages)) && visitor.deadline() > now
        });
        for at in (0..doors.len()).filter(|&at| doors[at]) {
            self.admit(at, now);
        }
        if moved.contains(&true) {
            self.renew();
        }
    }

    /// From now on neighbours come through a door with the rank's number of now on it.
    fn renew(&mut self) {
        if let Some(door) = self.renewal.as_mut().and_then(Renewal::take) {
            self.doors.retain(|door| !matches!(door, Door::Host(_)));
            self.doors.push(door);
        }
    }

    /// Lets in whoever waits outside a door. Where all places are taken, the one who came first has to go.
    fn admit(&mut self, door: usize, now: Instant) {
        for _ in 0..MOST_VISITORS {
            match self.doors[door].admit() {
                Ok(Some(newcomer)) => {
                    if self.visitors.len() >= MOST_VISITORS {
                        self.visitors.pop_front();
                    }
                    self.visitors.push_back(Visitor::new(newcomer, now + self.patience));
                }
                Ok(None) => {}
                Err(error) if is_passing(&error) => return,
                Err(error) => {
                    // Most likely the process is out of descriptors: whoever waits goes on waiting.
                    log::debug!("who asks how this rank stands has to wait: {error}");
                    self.shut_until = Some(now + PAUSE);
                    return;
                }
            }
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted)
}

/// More than ever ask at the same time.
pub(super) const MOST_VISITORS: usize = 16;
/// How long nobody is let in after that has failed.
const PAUSE: Duration = Duration::from_secs(1);
