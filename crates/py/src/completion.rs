//! Works whose end Python wants to be told of: one thread watches them all and calls back. It moves no bytes and waits for no operation.

use std::process;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::thread;

use phalanx::backend::Pending;
use phalanx::{Error, Result};
use pyo3::Python;

use crate::work::Progress;

/// Has the end of `pending` written down and told, once it comes.
pub(crate) fn watch(progress: &Arc<Progress>, pending: Box<dyn Pending>) -> Result<()> {
    let queue = queue()?;
    let watched = Watched { progress: Arc::clone(progress), pending: Mutex::new(Some(pending)), queue: queue.clone() };
    // The thread lives as long as the process, and so does the other end of the queue.
    let _ = queue.send(Arc::new(watched));
    Ok(())
}

/// An operation that is looked at whenever it may have ended.
struct Watched {
    progress: Arc<Progress>,
    /// Absent once it has ended.
    pending: Mutex<Option<Box<dyn Pending>>>,
    queue: Sender<Arc<Watched>>,
}

impl Wake for Watched {
    fn wake(self: Arc<Watched>) {
        let queue = self.queue.clone();
        let _ = queue.send(self);
    }
}

impl Watched {
    fn look(self: &Arc<Watched>) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(end) = pending.as_mut().and_then(|pending| pending.poll(&Waker::from(Arc::clone(self)))) else {
            return;
        };
        *pending = None;
        drop(pending);
        let end = self.progress.end(end);
        // Nobody can be told any more where the interpreter is about to end.
        Python::try_attach(|py| end.tell(py, self.progress.epoch()));
    }
}

/// The queue of this process; a forked child has its parent's memory but not its thread.
fn queue() -> Result<Sender<Arc<Watched>>> {
    let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    match &*queue {
        Some((owner, sender)) if *owner == process::id() => Ok(sender.clone()),
        _ => {
            let (sender, received) = mpsc::channel();
            let thread = thread::Builder::new().name("phalanx-python".to_owned());
            thread.spawn(move || serve(received)).map_err(|error| Error::setup("thread for futures", error))?;
            *queue = Some((process::id(), sender.clone()));
            Ok(sender)
        }
    }
}

fn serve(received: Receiver<Arc<Watched>>) {
    for watched in received {
        watched.look();
    }
}

static QUEUE: Mutex<Option<(u32, Sender<Arc<Watched>>)>> = Mutex::new(None);
