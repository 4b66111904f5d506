//! What wakes the launcher: one queue for signals, output, and other nodes, so that it waits in one place.

use std::cell::Cell;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::process::{descendants, signals};
use super::watch::Event;
use crate::failure::Failure;

/// The queue, and the guard, without whom nobody is left to work for.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) sender: Sender<Event>,
    receiver: Receiver<Event>,
    guard: Option<Pid>,
    /// The epoch that runs: news of another is old.
    epoch: Cell<u32>,
}

impl Events {
    /// The queue alone, into which nobody puts signals yet.
    pub(super) fn new(guard: Option<Pid>) -> Events {
        let (sender, receiver) = mpsc::channel();
        Events { sender, receiver, guard, epoch: Cell::new(0) }
    }

    /// Ties this process to the guard, adopts orphans, and turns signals into events.
    pub(super) fn listen(guard: i32) -> Result<Events, Failure> {
        let stopped = |what: &str, error: std::io::Error| Failure::Stopped(format!("{what}: {error}"));
        let events = Events::new(Pid::from_raw(guard));
        let mut signals = signals::listen(&signals::watched()).map_err(|error| stopped("signal handlers", error))?;
        let told = events.sender.clone();
        let forward = move || signals.forever().try_for_each(|signal| told.send(Event::Signal(signal)));
        let thread = thread::Builder::new().name("phalanx-signals".to_owned()).spawn(forward);
        thread.map_err(|error| stopped("signal thread", error))?;
        descendants::adopt().map_err(|error| stopped("child subreaper", error.into()))?;
        // One that always has a handler; those that ask for the end may be ignored.
        set_parent_process_death_signal(Some(Signal::CHILD))
            .map_err(|error| stopped("parent-death signal", error.into()))?;
        // A guard that died before the line above sends no signal any more.
        events.check_guard()?;
        Ok(events)
    }

    /// Refuses to go on once the guard is gone.
    pub(super) fn check_guard(&self) -> Result<(), Failure> {
        match self.is_orphaned() {
            true => Err(Failure::Stopped(ORPHANED.to_owned())),
            false => Ok(()),
        }
    }

    /// From now on news of other nodes counts only if it is of this epoch.
    pub(super) fn begin(&self, epoch: u32) {
        self.epoch.set(epoch);
    }

    /// The next event; none once the deadline has passed.
    pub(super) fn next(&self, deadline: Option<Instant>) -> Option<Event> {
        loop {
            let event = match deadline {
                Some(deadline) => self.receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok(),
                None => self.receiver.recv().ok(),
            };
            match event {
                Some(Event::Signal(_)) if self.is_orphaned() => return Some(Event::Orphaned),
                Some(Event::Elsewhere(epoch) | Event::Judged(epoch, _)) if epoch != self.epoch.get() => {}
                event => return event,
            }
        }
    }

    /// Whether the guard is gone.
    pub(super) fn is_orphaned(&self) -> bool {
        getppid() != self.guard
    }
}

/// The name of this machine.
pub(super) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What there is to say once the guard is gone.
pub(super) const ORPHANED: &str = "the process of `phalanx run` was killed";
