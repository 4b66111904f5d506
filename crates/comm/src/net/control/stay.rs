//! A rank's stay in its group: it lasts until it is dropped, and leaves in order then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use phalanx_core::{Error, Result};

use super::keeper::Keeper;
use crate::bell::Bell;
use crate::fate::Fate;
use crate::host::Presence;
use crate::net::greeting::Line;
use crate::net::socket::Socket;
use crate::net::standing::Standing;

/// A peer: its rank, the control connection, the sockets of the links, and its standing.
pub(crate) type Peer = (usize, Line, Vec<Arc<Socket>>, Arc<Standing>);

/// What a keeper is given.
#[derive(Debug)]
pub(crate) struct Company {
    pub(crate) rank: usize,
    pub(crate) peers: Vec<Peer>,
    pub(crate) fate: Arc<Fate>,
    /// The bell that wakes the keeper, and the rank's.
    pub(crate) bell: Arc<Bell>,
    pub(crate) rank_bell: Arc<Bell>,
}

/// A rank that is here. Dropping it says that the rank leaves, and ends once that is done, within five seconds.
#[derive(Debug)]
pub(crate) struct Stay {
    bell: Arc<Bell>,
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stay {
    /// Speaks and listens to the peers from now on.
    pub(crate) fn begin(company: Company) -> Result<Stay> {
        let failed = |error: std::io::Error| Error::setup("control of the group", error);
        let (bell, has_ended) = (Arc::clone(&company.bell), Arc::new(AtomicBool::new(false)));
        let keeper = Keeper::new(company, Arc::clone(&has_ended)).map_err(failed)?;
        let thread = thread::Builder::new().name("phalanx-keeper".to_owned()).spawn(|| keeper.keep());
        Ok(Stay { bell, has_ended, thread: Some(thread.map_err(failed)?) })
    }
}

impl Presence for Stay {}

impl Drop for Stay {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Release);
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
