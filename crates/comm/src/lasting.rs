//! The backend of a rank: a group outlives what its ranks disagree about. Each time all come together again on new links, in a
//! new round.
//!
//! Ranks that disagree have moved bytes that the others did not expect, so what is under way on their links means nothing any
//! more. Every rank is told once. With its next call it comes back; when all have, they agree on the number that is next, and
//! connect anew, as they did at first. Of the old links nothing can come into the new round.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::backend::{Backend, Buffers, Number, Numbers, Pending};
use phalanx_core::player::Data;
use phalanx_core::{Call, Chain, Error, Layout, OpKind, Result, Stuck, Timeout, Waiting};
use phalanx_mem::Buffer;

use crate::equipment::{Equipment, Style};
use crate::host::{Host, Quarrel, WAKING, at_least};
use crate::slot::{Slot, Waiter};

/// How a rank comes by its links once more.
pub(crate) trait Rejoin: Send + Sync {
    /// Meets the same ranks again. Every round has its own number, the same on all.
    fn rejoin(&self, round: u32, deadline: Instant) -> Result<Equipment>;
}

/// One rank, over all rounds.
pub(crate) struct Lasting {
    /// The first round, which mostly is the only one: to come by it costs no more than a look. As calls look at any time, nobody knows when
    /// the last has: what memory it has left once it is over goes with the group.
    first: Arc<Host>,
    is_first: AtomicBool,
    later: RwLock<Arc<Host>>,
    layout: Layout,
    style: Style,
    way: Box<dyn Rejoin>,
    began: Instant,
    between: Mutex<Between>,
    changed: Condvar,
}

/// The round that is played.
enum Current<'a> {
    First(&'a Arc<Host>),
    Later(Arc<Host>),
}

/// What goes on between two rounds.
#[derive(Debug, Default)]
struct Between {
    /// Whether a thread of this rank is about to come together with the others.
    is_busy: bool,
    /// What the ranks disagreed about last.
    quarrel: Option<Error>,
    /// Why they do not come together again.
    over: Option<Error>,
}

impl Lasting {
    pub(crate) fn new(layout: Layout, style: Style, equipment: Equipment, way: Box<dyn Rejoin>) -> Lasting {
        let began = Instant::now();
        let first = Arc::new(style.host(&layout, equipment, Numbers::default(), began));
        let (is_first, later) = (AtomicBool::new(true), RwLock::new(Arc::clone(&first)));
        Lasting {
            first,
            is_first,
            later,
            layout,
            style,
            way,
            began,
            between: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    #[inline]
    fn current(&self) -> Current<'_> {
        match self.is_first.load(Ordering::Acquire) {
            true => Current::First(&self.first),
            false => Current::Later(Arc::clone(&self.later.read().unwrap_or_else(PoisonError::into_inner))),
        }
    }

    /// Lets one thread of this rank lead it into the next round, and the others wait for that.
    fn come_together(&self, host: &Arc<Host>, quarrel: Error, op: OpKind, timeout: Duration) -> Result<()> {
        let deadline = Instant::now().checked_add(timeout);
        let late = |missing: Vec<usize>| late(op, host.upcoming(), timeout, missing);
        let waited = self.changed.wait_timeout_while(self.between(), timeout, |between| between.is_busy);
        let mut between = waited.unwrap_or_else(PoisonError::into_inner).0;
        if !Arc::ptr_eq(&self.current(), host) {
            return Ok(());
        }
        if let Some(over) = &between.over {
            return Err(Error::aborted_by(over.clone()));
        }
        if between.is_busy {
            return Err(late(vec![]));
        }
        (between.is_busy, between.quarrel) = (true, Some(quarrel.clone()));
        drop(between);
        let next = self.next_round(host, deadline, late);
        let mut between = self.between();
        between.is_busy = false;
        let end = match next {
            Ok(next) => {
                *self.later.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&next);
                self.is_first.store(false, Ordering::Release);
                // The others hear in the new round of what this rank aborted meanwhile.
                between.over.iter().for_each(|over| next.abort(over.clone()));
                Ok(())
            }
            Err(error) => Err(between.over.get_or_insert(error).clone()),
        };
        drop(between);
        self.changed.notify_all();
        host.retire(&quarrel);
        end.map(|()| part(Arc::clone(host)))
    }

    fn next_round(
        &self,
        host: &Host,
        deadline: Option<Instant>,
        late: impl FnOnce(Vec<usize>) -> Error,
    ) -> Result<Arc<Host>> {
        let (first, round) = (host.reunite(deadline, late)?, host.round() + 1);
        // All are in a call, and come whatever is aborted now: only a fault keeps one away.
        let soon = Instant::now() + WITHIN;
        let deadline = at_least(deadline, WAKING).map_or(soon, |deadline| deadline.min(soon));
        let equipment = self.way.rejoin(round, deadline)?;
        log::info!("rank {} is in round {round}, which begins with operation {first}", self.layout.rank());
        Ok(Arc::new(self.style.host(&self.layout, equipment, Numbers::new(round, first), self.began)))
    }

    /// The round that a call belongs to, unless it is over.
    fn round_of(&self, call: &Call) -> Result<Current<'_>> {
        let host = self.current();
        if host.round() == call.round {
            return Ok(host);
        }
        // Another thread of this rank has led it into the next round since the call was numbered.
        let over = || Error::aborted("the round of this call is over");
        let error = self.between().quarrel.clone().unwrap_or_else(over);
        call.end(|| self.began.elapsed(), Some(&error));
        Err(error)
    }

    fn between(&self) -> MutexGuard<'_, Between> {
        self.between.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for Lasting {
    fn number(&self, op: OpKind, timeout: Duration) -> Result<Number> {
        let mut waited = Duration::ZERO;
        loop {
            let host = self.current();
            match host.number(op) {
                Ok(number) => return Ok(Number { waited, ..number }),
                Err(Quarrel { error, has_told: false }) => return Err(error),
                Err(Quarrel { error, has_told: true }) => {
                    let began = Instant::now();
                    self.come_together(&host, error, op, timeout.saturating_sub(waited))?;
                    waited += began.elapsed();
                }
            }
        }
    }

    fn upcoming(&self) -> u32 {
        self.current().upcoming()
    }

    fn submit(&self, call: Call, buffers: Buffers) -> Box<dyn Pending> {
        match self.round_of(&call) {
            Ok(host) => host.submit(call, buffers),
            Err(error) => {
                let slot = Arc::new(Slot::default());
                drop(slot.fill(Err(error)));
                Box::new(Waiter(slot))
            }
        }
    }

    fn run(&self, call: &Call, data: &mut Data<'_>) -> Result<Option<usize>> {
        self.round_of(call)?.run(call, data)
    }

    fn abort(&self, cause: Error) {
        let mut between = self.between();
        between.over.get_or_insert_with(|| cause.clone());
        // Where all go on to the next round, that is aborted as soon as it is there.
        self.current().abort(cause);
    }

    fn allocate(&self, byte_len: usize) -> Result<Buffer> {
        self.current().allocate(byte_len)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

impl fmt::Debug for Lasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lasting")
            .field("host", &**self.current())
            .field("between", &self.between)
            .finish_non_exhaustive()
    }
}

impl Deref for Current<'_> {
    type Target = Arc<Host>;

    fn deref(&self) -> &Arc<Host> {
        match self {
            Current::First(host) => host,
            Current::Later(host) => host,
        }
    }
}

/// Leaves a round that is over, which may take its time.
fn part(host: Arc<Host>) {
    // Where there is no thread, it is left with the last who holds it.
    let leave = move || host.leave();
    let _ = thread::Builder::new().name("phalanx-part".to_owned()).spawn(leave);
}

/// The error of a call for which ranks did not come back in time.
fn late(op: OpKind, sequence: u32, after: Duration, missing: Vec<usize>) -> Error {
    let stuck = missing.into_iter().map(|peer| Stuck { peer, on: Waiting::Coming { last: None } }).collect();
    Error::Timeout(Box::new(Timeout { op, sequence, after, stuck, chain: Chain::Direct }))
}

/// How long it may take ranks that all have come back to connect.
const WITHIN: Duration = Duration::from_secs(10);
