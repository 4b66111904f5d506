//! Signals that ask for the end: told to the world that runs, so that nothing of it is left. While none does, they end this process
//! as they always do.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use signal_hook::low_level::emulate_default_handler;

use super::world::Said;
use crate::failure::Failure;
use crate::run::interrupt::{Interrupt, Wish};
use crate::run::process::signals;

/// Who is told of signals.
#[derive(Debug)]
pub(super) struct Interrupts(Arc<Mutex<Option<Sender<Said>>>>);

impl Interrupts {
    /// Begins to listen.
    pub(super) fn listen() -> Result<Interrupts, Failure> {
        let stopped = |what: &str, error: std::io::Error| Failure::Stopped(format!("{what}: {error}"));
        let mut signals = signals::listen(&signals::ending()).map_err(|error| stopped("signal handlers", error))?;
        let world = Arc::new(Mutex::new(None));
        let told = Arc::clone(&world);
        let hear = move || {
            let mut interrupt = Interrupt::default();
            for signal in signals.forever() {
                let is_told = || locked(&told).as_ref().is_some_and(|world| world.send(Said::Signal(signal)).is_ok());
                match interrupt.hear(signal, Instant::now()) {
                    Wish::First if is_told() => {}
                    Wish::Same => {}
                    // Nothing runs that would be left; or what runs does not end, as where the driver does not answer.
                    Wish::First | Wish::Again => drop(emulate_default_handler(signal)),
                }
            }
        };
        let thread = thread::Builder::new().name("phalanx-signals".to_owned()).spawn(hear);
        thread.map_err(|error| stopped("signal thread", error))?;
        Ok(Interrupts(world))
    }

    /// From now on this world is told, for as long as it hears.
    pub(super) fn tell(&self, world: Sender<Said>) {
        *locked(&self.0) = Some(world);
    }

    /// From now on a signal ends this process again.
    pub(super) fn tell_nobody(&self) {
        *locked(&self.0) = None;
    }
}

fn locked(world: &Mutex<Option<Sender<Said>>>) -> MutexGuard<'_, Option<Sender<Said>>> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}
