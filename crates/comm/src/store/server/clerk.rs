//! Answers to those who proved the key, written on a thread beside the server's: the curve takes longer than many requests
//! of members, who are not to wait for it.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use mio::{Token, Waker};

use super::reactor::Order;
use crate::secure::{Claimant, Denial, HandshakeError, Tunnel, Verdict};

/// Writes answers, one after the other, and hands them to the server's thread.
#[derive(Debug)]
pub(super) struct Clerk {
    /// Gone once the clerk is to end.
    cases: Option<Sender<Case>>,
    thread: Option<JoinHandle<()>>,
}

/// What a claimant is to be told.
#[derive(Debug)]
pub(super) enum Answer {
    Admitted { bytes: Vec<u8>, tunnel: Tunnel },
    Denied { bytes: Vec<u8>, denial: Denial },
}

/// How the clerk reaches the server's thread.
#[derive(Clone, Debug)]
pub(super) struct Office {
    pub(super) orders: Sender<Order>,
    pub(super) waker: Arc<Waker>,
}

#[derive(Debug)]
struct Case {
    token: Token,
    claimant: Claimant,
    verdict: Verdict,
}

impl Clerk {
    pub(super) fn start(office: Office) -> std::io::Result<Clerk> {
        let (cases, brought) = mpsc::channel();
        let thread = thread::Builder::new().name("phalanx-clerk".to_owned()).spawn(move || work(&brought, &office))?;
        Ok(Clerk { cases: Some(cases), thread: Some(thread) })
    }

    /// Has the answer written for the claimant at `token`.
    pub(super) fn take(&self, token: Token, claimant: Claimant, verdict: Verdict) {
        if let Some(cases) = &self.cases {
            // A clerk that is gone took the server with it.
            let _ = cases.send(Case { token, claimant, verdict });
        }
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.cases = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Office {
    /// Has `order` carried out between two turns of the server; whether there is one.
    pub(super) fn bring(&self, order: Order) -> bool {
        self.orders.send(order).is_ok() && self.waker.wake().is_ok()
    }
}

fn work(cases: &Receiver<Case>, office: &Office) {
    give_way();
    for Case { token, claimant, verdict } in cases {
        let answer = write(claimant, verdict);
        if !office.bring(Box::new(move |reactor| reactor.hand(token, answer))) {
            return;
        }
    }
}

/// Members come before newcomers on the processors as well. On Linux the priority is this thread's alone; where it is the
/// whole process's, it stays as it is.
fn give_way() {
    if let Err(error) = rustix::process::setpriority_process(None, PRIORITY) {
        log::debug!("store server: the clerk keeps its priority: {error}");
    }
}

fn write(claimant: Claimant, verdict: Verdict) -> Result<Answer, HandshakeError> {
    match verdict {
        Ok(welcome) => claimant.admit(&welcome).map(|(bytes, tunnel)| Answer::Admitted { bytes, tunnel }),
        Err(denial) => claimant.deny(&denial).map(|bytes| Answer::Denied { bytes, denial }),
    }
}

/// Below the server's, which is 0 mostly. Without it, where there are few cores, the clerk is in the members' way again.
const PRIORITY: i32 = 10;
