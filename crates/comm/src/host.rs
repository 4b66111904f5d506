//! One round of a rank whose bytes this process moves itself: blocking calls on the caller's thread, others on a driver
//! thread that starts with the first of them. What comes after a disagreement is the next round's: see `lasting`.

mod driver;
mod messages;
mod reunion;
#[cfg(test)]
mod tests;
mod waiting;

use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use phalanx_core::backend::{Buffers, Numbers, Pending};
use phalanx_core::link::Borrowed;
use phalanx_core::player::{Data, Progress};
use phalanx_core::{Call, Error, Result};
use phalanx_mem::{Buffer, Heap, Origin};

pub(crate) use reunion::{Quarrel, WAKING, at_least};

use crate::bell::Bell;
use crate::fate::{Fate, Return, is_before};
use crate::lane::{Job, Lane};
use crate::patience::{Crowd, Patience};
use crate::post::{Open, Post};
use crate::pulse::Pulse;
use crate::slot::{Slot, Waiter};
use crate::stage::{Playing, Stage};
use crate::waits::Kinship;

/// One rank's part in one round. Dropping it lets what is queued end first.
#[derive(Debug)]
pub(crate) struct Host {
    inner: Arc<Inner>,
    /// Disconnected when the driver has ended.
    driver: Mutex<Option<Receiver<Infallible>>>,
    /// How long a drop waits for the driver, which would not outlive the process.
    linger: Duration,
    heap: Option<Arc<Heap>>,
}

/// What a host is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) rank: usize,
    pub(crate) stage: Stage,
    pub(crate) post: Post,
    pub(crate) bell: Arc<Bell>,
    pub(crate) fate: Arc<Fate>,
    pub(crate) crowd: Crowd,
    pub(crate) kinship: Kinship,
    /// What says that this rank is here, until it is dropped.
    pub(crate) presence: Option<Box<dyn Presence>>,
    pub(crate) heap: Option<Arc<Heap>>,
    pub(crate) numbers: Numbers,
    /// The moment from which its clock counts.
    pub(crate) began: Instant,
}

/// What is dropped when a rank has left for good: after its links and windows.
pub(crate) trait Presence: fmt::Debug + Send + Sync {}

#[derive(Debug)]
struct Inner {
    rank: usize,
    /// The process that joined the group, to which links, windows and threads belong. Without memory for it a child is not told
    /// from its parent.
    origin: Option<Origin>,
    lane: Lane,
    stage: Mutex<Stage>,
    post: Mutex<Post>,
    bell: Arc<Bell>,
    fate: Arc<Fate>,
    crowd: Crowd,
    kinship: Kinship,
    numbers: Numbers,
    began: Instant,
    is_driven: AtomicBool,
    /// The driver.
    driver: OnceLock<ThreadId>,
    /// Whether a call of this rank has told of what the group failed.
    has_told: AtomicBool,
    /// Why this rank has given the group up, as its later calls tell. The others hear only that it has.
    gave_up: OnceLock<Error>,
    // The last field: links and windows are closed before it goes.
    presence: Mutex<Option<Box<dyn Presence>>>,
}

impl Host {
    pub(crate) fn new(parts: Parts) -> Host {
        let Parts { rank, stage, post, bell, fate, crowd, kinship, presence, heap, numbers, began } = parts;
        kinship.enter(&fate);
        let linger = if presence.is_some() { LINGER } else { Duration::ZERO };
        let (stage, post) = (Mutex::new(stage), Mutex::new(post));
        let lane = Lane::starting_at(numbers.upcoming());
        let (is_driven, has_told) = (AtomicBool::new(false), AtomicBool::new(false));
        let inner = Inner {
            rank,
            origin: Origin::new().ok(),
            lane,
            stage,
            post,
            bell,
            fate,
            crowd,
            kinship,
            numbers,
            began,
            is_driven,
            driver: OnceLock::new(),
            has_told,
            gave_up: OnceLock::new(),
            presence: Mutex::new(presence),
        };
        Host { inner: Arc::new(inner), driver: Mutex::new(None), linger, heap }
    }

    /// Which round it is.
    pub(crate) fn round(&self) -> u32 {
        self.inner.numbers.round()
    }

    /// The number that its next collective would have.
    pub(crate) fn upcoming(&self) -> u32 {
        self.inner.numbers.upcoming()
    }
}

/// What a backend does, in one round.
impl Host {
    pub(crate) fn submit(&self, call: Call, mut buffers: Buffers) -> Box<dyn Pending> {
        let slot = Arc::new(Slot::default());
        let stands = self.inner.stands(&call);
        if stands.is_ok()
            && let Some(finished) = self.inner.finish_at_once(&call, &mut buffers)
        {
            call.end(|| self.now(), None);
            drop(slot.fill(Ok(finished)));
            return Box::new(Waiter(slot));
        }
        if let Err(error) = stands.and_then(|()| self.drive(&call, thread::Builder::new())) {
            call.end(|| self.now(), Some(&error));
            drop(slot.fill(Err(error)));
        } else if call.op.is_message() {
            self.inner.post().post_async(call, buffers, Arc::clone(&slot));
            self.inner.lane.nudge();
            self.inner.bell.ring();
        } else {
            let deadline = self.inner.open(&call);
            self.inner.lane.queue(Job { call, deadline, buffers, slot: Arc::clone(&slot) });
            self.inner.bell.ring();
        }
        if self.inner.lane.is_closed() {
            // Another thread has led this rank out of the round meanwhile, and the driver may have looked for the last time.
            self.inner.drive_to_the_end();
        }
        Box::new(Waiter(slot))
    }

    pub(crate) fn run(&self, call: &Call, data: &mut Data<'_>) -> Result<Option<usize>> {
        // Made anew: to move what was just written would wait for all stores before it.
        match self.inner.run(call, data) {
            Ok(source) => {
                call.end(|| self.now(), None);
                Ok(source)
            }
            Err(error) => {
                call.end(|| self.now(), Some(&error));
                Err(error)
            }
        }
    }

    pub(crate) fn abort(&self, cause: Error) {
        if self.inner.is_at_home().is_err() {
            return;
        }
        self.inner.fail(cause.clone());
        // Where it failed before, by a disagreement, the others wait until this rank comes back.
        self.inner.give_up(cause);
        if let Ok(mut stage) = self.inner.stage.try_lock() {
            stage.mesh.close();
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.inner.now()
    }

    pub(crate) fn allocate(&self, byte_len: usize) -> Result<Buffer> {
        self.inner.is_at_home()?;
        let allocated = match &self.heap {
            Some(heap) => heap.allocate(byte_len),
            None => Buffer::try_zeroed(byte_len),
        };
        allocated.map_err(|error| Error::setup("buffer", error))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.inner.is_at_home().is_err() {
            // Nothing of it may be closed here: the parent has the same sockets and memory.
            return std::mem::forget(Arc::clone(&self.inner));
        }
        if thread::panicking() {
            self.inner.fail(self.inner.panicked());
        }
        self.inner.fate.note_return(self.inner.rank, Return::Gone);
        self.inner.lane.close();
        self.inner.bell.ring();
        let driver = self.driver.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // A task that is told of an end may have held the last group: then this is the driver.
        let is_driver = self.inner.is_driver();
        if let Some(ended) = driver.filter(|_| !self.linger.is_zero() && !is_driver) {
            let _ = ended.recv_timeout(self.linger);
        }
    }
}

impl Inner {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// That this is the process that joined the group.
    fn is_at_home(&self) -> Result<()> {
        if self.origin.as_ref().is_none_or(Origin::is_here) {
            return Ok(());
        }
        let why = format!("rank {} belongs to the process that joined, and this one was forked from it", self.rank);
        Err(Error::setup("group", why))
    }

    /// That the group still stands. When it does not, the number of the call that asks will never have its turn, and
    /// those behind it must not wait for that.
    fn stands(&self, call: &Call) -> Result<()> {
        self.is_at_home()?;
        let stands = if call.op.is_message() { self.check_message() } else { self.check(call) };
        stands.inspect_err(|error| self.break_off(error))
    }

    /// Says that no turn comes any more, or none of those that this failure concerns.
    fn break_off(&self, error: &Error) {
        match error {
            Error::Desync(desync) => self.lane.break_off_from(desync.sequence),
            _ => self.lane.break_off(),
        }
    }

    /// That a collective may go on. It tells where it may not. What ranks disagree about later does not concern it, unless they will not
    /// come together after that, or this rank has left the round: then it does not come to its end either.
    fn check(&self, call: &Call) -> Result<()> {
        let end = match self.fate.check() {
            Ok(()) => return Ok(()),
            Err(Error::Desync(desync)) if is_before(call.sequence, desync.sequence) => match self.over() {
                Some(over) => over,
                None if self.lane.is_broken(call.sequence) => Error::Desync(desync),
                None => return Ok(()),
            },
            Err(error) => error,
        };
        self.has_told.store(true, Ordering::Release);
        Err(end)
    }

    /// Carries a call out on this thread. Returns the sender of a message that was received.
    fn run(&self, call: &Call, data: &mut Data<'_>) -> Result<Option<usize>> {
        self.stands(call)?;
        if call.op.is_message() {
            return self.run_message(call, data);
        }
        self.run_collective(call, data)?;
        Ok(None)
    }

    fn run_collective(&self, call: &Call, data: &mut Data<'_>) -> Result<()> {
        if !self.lane.is_turn_of(call.sequence) {
            self.open(call);
        }
        let Some(turn) = self.lane.enter(call.sequence, call.timeout) else {
            // Nobody is to wait for a turn that this call will not take.
            self.check(call).inspect_err(|error| self.break_off(error))?;
            let late = self.kinship.traced(call.timed_out(self.absent(call, self.lane.turn())));
            return Err(self.fail_call(call, late));
        };
        if turn.was_awaited() {
            call.start(self.now());
        }
        let played = self.play(call, data);
        drop(turn);
        if self.lane.has_queued() {
            // The driver may sleep for messages, which the end of a turn does not wake it from.
            self.bell.ring();
        }
        played
    }

    /// Plays a collective whose turn it is.
    fn play(&self, call: &Call, data: &mut Data<'_>) -> Result<()> {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        let mut playing = stage.begin(call).map_err(|error| self.fail_call(call, error))?;
        let played = self.play_out(call, &mut playing, data);
        played.map_err(|error| self.fail_playing(call, error, &mut stage))
    }

    /// Ends the group because a collective failed, unless that concerns this call alone. Returns what the caller reports.
    fn fail_playing(&self, call: &Call, error: Error, stage: &mut Stage) -> Error {
        let is_private = error.is_private();
        // Sealed before peers see that this rank has given up, or its links closed: neither is the cause.
        let reported = if is_private { error } else { self.fail_call(call, error) };
        let taken_back = stage.mesh.take_back();
        if !is_private && !matches!(reported, Error::Desync(_)) {
            stage.mesh.close();
        }
        // Else what was sent before still serves those who are not as far.
        let Err(refused) = taken_back else { return reported };
        // The group's failure is the smaller one.
        let why = format!("peers may write to it at any time: {refused}; the operation failed because {reported}");
        Error::setup("memory lent for an operation", why)
    }

    fn play_out(&self, call: &Call, playing: &mut Playing<'_>, data: &mut Data<'_>) -> Result<()> {
        let is_told_later = call.flight.created().is_none() && call.op.root().is_none();
        if !is_told_later {
            self.enrol(call);
        }
        if call.op.root().is_some() {
            // A rank that only gives is done before it could see that nobody takes.
            self.fate.roll.compare(self.rank, &call.fingerprint)?;
        }
        let mut patience = Patience::until(&self.bell, self.crowd, None);
        let mut vigil = self.kinship.vigil();
        let mut pulse = Pulse::default();
        let mut is_first = true;
        loop {
            let polled = playing.poll(data);
            if std::mem::take(&mut is_first) {
                // What the peers wait for is on its way, and this rank has to wait for theirs anyway.
                if is_told_later {
                    self.enrol(call);
                }
                if polled != Ok(Progress::Done) {
                    call.start_when_called(|| self.now());
                    patience.bound(self.deadline(call));
                }
            }
            let is_in_time = match polled.map_err(|error| self.explain(call, playing, error))? {
                Progress::Done => return self.check_end(call, playing.mesh.take_borrowed()),
                Progress::Moved => {
                    vigil.end();
                    let is_in_time = patience.renew();
                    if patience.is_look_due() {
                        self.fail_overdue(call, playing);
                    }
                    is_in_time
                }
                Progress::Idle => {
                    self.check(call)?;
                    if !patience.is_fresh() {
                        self.drive_post_in_passing(patience.is_tried());
                    }
                    if patience.is_tried() {
                        self.fate.call();
                        self.fate.roll.compare(self.rank, &call.fingerprint)?;
                        self.fail_overdue(call, playing);
                    }
                    if patience.is_long() {
                        self.check_keeper(&mut pulse)?;
                        if !vigil.is_told() {
                            vigil.tell(&self.stuck(call, playing));
                        }
                    }
                    patience.wait()
                }
            };
            if !is_in_time {
                vigil.give_up();
                return Err(self.kinship.traced(call.timed_out(self.stuck(call, playing))));
            }
        }
    }

    /// That a collective which has come to its end is right: that nobody had given it up whose memory it read.
    fn check_end(&self, call: &Call, read: Borrowed) -> Result<()> {
        match read {
            Borrowed::Nothing if self.fate.quarrel().is_none() => Ok(()),
            Borrowed::Nothing | Borrowed::Kept => self.check(call),
            Borrowed::GivenUp(rank) => {
                self.check(call)?;
                // Word of why has not come yet, or there will be none: ranks disagree, and all but this call go on together.
                let rank = self.kinship.world_rank(rank);
                Err(Error::aborted(format!("rank {rank} gave the operation up while this one read its memory")))
            }
        }
    }

    /// Ends the group: seals its fate, ends every message, lets nobody in any more. Returns what the caller reports.
    fn fail(&self, error: Error) -> Error {
        let reported = self.fate.seal(self.rank, error);
        self.has_told.store(true, Ordering::Release);
        self.end_all(&reported);
        reported
    }

    /// Ends the turns and messages that this failure concerns.
    fn end_all(&self, reported: &Error) {
        self.break_off(reported);
        if !matches!(reported, Error::Desync(_)) {
            self.post().close(&reported.clone().in_its_wake(), self.now());
        }
    }

    /// The same because a collective failed. Where it comes before what the ranks disagree about, all were to end it first: as this one does
    /// not, they do not come together any more.
    fn fail_call(&self, call: &Call, error: Error) -> Error {
        match self.fail(error.clone()) {
            Error::Desync(desync)
                if !matches!(error, Error::Desync(_)) && is_before(call.sequence, desync.sequence) =>
            {
                self.give_up(error.clone());
                // Whatever the caller does to its buffers from here on, peers that see it see that too.
                fence(Ordering::SeqCst);
                self.end_all(&error);
                error
            }
            reported => reported,
        }
    }

    fn post(&self) -> Open<'_> {
        Open::new(self.post.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.kinship.leave(&self.fate);
    }
}

/// How long a process that leaves stays for what it has queued.
const LINGER: Duration = Duration::from_secs(5);
