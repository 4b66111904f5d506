//! Works whose end Python wants to be told of: a thread watches them all and calls back. It moves no bytes and waits for no operation.
//!
//! A callback may wait for the end of another work, so there is always a thread that listens while others speak. Callbacks that wait for
//! nothing come one after the other all the same, in the order of the ends.

use std::process;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use phalanx::backend::Pending;
use phalanx::{Error, Result};
use pyo3::Python;

use crate::work::{End, Progress};

/// Has the end of `pending` written down and told, once it comes; gives it back where nobody can be had who watches.
pub(crate) fn watch(progress: &Arc<Progress>, pending: Box<dyn Pending>) -> Result<(), (Error, Box<dyn Pending>)> {
    let queue = match queue() {
        Ok(queue) => queue,
        Err(error) => return Err((error, pending)),
    };
    hand_over(progress, Stage::Pending(pending), &queue);
    Ok(())
}

/// Has an end told that is written down already, by whoever has no time for callbacks; gives it back where nobody can be had who does that.
pub(crate) fn tell(progress: &Arc<Progress>, end: End) -> Result<(), End> {
    match queue() {
        Ok(queue) => hand_over(progress, Stage::Ended(end), &queue),
        Err(_) => return Err(end),
    }
    Ok(())
}

/// An operation that is looked at whenever it may have ended.
struct Watched {
    progress: Arc<Progress>,
    /// Absent once its end is told.
    stage: Mutex<Option<Stage>>,
    queue: Sender<Arc<Watched>>,
}

/// How far it is when it comes here.
enum Stage {
    Pending(Box<dyn Pending>),
    Ended(End),
}

fn hand_over(progress: &Arc<Progress>, stage: Stage, queue: &Sender<Arc<Watched>>) {
    let watched = Watched { progress: Arc::clone(progress), stage: Mutex::new(Some(stage)), queue: queue.clone() };
    // The thread lives as long as the process, and so does the other end of the queue.
    let _ = queue.send(Arc::new(watched));
}

impl Wake for Watched {
    fn wake(self: Arc<Watched>) {
        let queue = self.queue.clone();
        let _ = queue.send(self);
    }
}

impl Watched {
    /// How it ended, if it just has.
    fn look(self: &Arc<Watched>) -> Option<End> {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        match stage.take()? {
            Stage::Ended(end) => Some(end),
            Stage::Pending(mut pending) => match pending.poll(&Waker::from(Arc::clone(self))) {
                Some(end) => {
                    drop(pending);
                    Some(self.progress.end(end))
                }
                None => {
                    *stage = Some(Stage::Pending(pending));
                    None
                }
            },
        }
    }
}

/// The queue of this process; a forked child has its parent's memory but not its thread.
fn queue() -> Result<Sender<Arc<Watched>>> {
    let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    match &*queue {
        Some((owner, sender)) if *owner == process::id() => Ok(sender.clone()),
        _ => {
            let (sender, received) = mpsc::channel();
            let received = Mutex::new(received);
            listen(&Arc::new(Crew { received, state: Mutex::default(), changed: Condvar::new() }))?;
            *queue = Some((process::id(), sender.clone()));
            Ok(sender)
        }
    }
}

/// The threads that watch works: as many as callbacks ever waited in one another, and one.
struct Crew {
    received: Mutex<Receiver<Arc<Watched>>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Threads that are in no callback.
    listening: usize,
    /// When those that are in one began.
    speaking: Vec<Instant>,
}

/// Another thread for the crew.
fn listen(crew: &Arc<Crew>) -> Result<()> {
    let member = Arc::clone(crew);
    let thread = thread::Builder::new().name("phalanx-python".to_owned());
    crew.state().listening += 1;
    let started = thread.spawn(move || member.serve()).map_err(|error| Error::setup("thread for futures", error));
    if started.is_err() {
        crew.state().listening -= 1;
    }
    started.map(drop)
}

impl Crew {
    fn serve(self: Arc<Crew>) {
        while let Some(watched) = self.next() {
            if let Some(end) = watched.look() {
                let began = self.begin();
                // Nobody can be told any more where the interpreter is about to end.
                Python::try_attach(|py| end.tell(py, watched.progress.epoch()));
                self.end(began);
            }
        }
    }

    fn next(&self) -> Option<Arc<Watched>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
    }

    /// Lets whoever speaks finish, unless that takes so long that it must be waiting itself, and leaves somebody to listen.
    fn begin(self: &Arc<Crew>) -> Instant {
        let mut state = self.state();
        while let Some(left) = state.speaking.iter().filter_map(|began| SHORT.checked_sub(began.elapsed())).max() {
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let began = Instant::now();
        state.speaking.push(began);
        state.listening -= 1;
        let is_last = state.listening == 0;
        drop(state);
        if is_last {
            // Where the system has no thread left, what ends meanwhile is told once this callback is over.
            let _ = listen(self);
        }
        began
    }

    fn end(&self, began: Instant) {
        let mut state = self.state();
        state.listening += 1;
        if let Some(at) = state.speaking.iter().position(|each| *each == began) {
            state.speaking.swap_remove(at);
        }
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A callback that computes is over by then, or no worse for company.
const SHORT: Duration = Duration::from_millis(5);

static QUEUE: Mutex<Option<(u32, Sender<Arc<Watched>>)>> = Mutex::new(None);
