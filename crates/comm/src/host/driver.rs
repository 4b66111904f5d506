//! The driver of one rank: the thread that plays what was submitted. It starts with the first of that.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::backend::Finished;
use phalanx_core::{Call, Error, PeerReason, Result, Stuck};

use super::{Host, Inner};
use crate::lane::Job;
use crate::patience::{Patience, Wariness};
use crate::slot::News;
use crate::stage::Playing;

impl Host {
    /// Starts the driver on such a thread for this call, unless it runs. Where there is none the group fails: those behind the call would
    /// wait for its turn.
    pub(super) fn drive(&self, call: &Call, builder: thread::Builder) -> Result<()> {
        if self.inner.is_driven.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let inner = Arc::clone(&self.inner);
        let (end, ended) = mpsc::channel::<Infallible>();
        let driver = move || {
            Wariness::never();
            let _ = inner.driver.set(thread::current().id());
            inner.drive_to_the_end();
            drop(inner);
            drop(end);
        };
        *self.driver.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
        let started = builder.name("phalanx-lane".to_owned()).spawn(driver);
        started.map(drop).map_err(|error| {
            self.inner.is_driven.store(false, Ordering::Release);
            let reported = self.inner.fail_call(call, Error::setup("driver thread", error));
            // Whoever has queued something meanwhile sees to it that this is told.
            self.inner.lane.close();
            reported
        })
    }
}

impl Inner {
    /// Whether this is the driver's thread.
    pub(super) fn is_driver(&self) -> bool {
        self.driver.get() == Some(&thread::current().id())
    }

    /// The error of a rank one of whose threads panicked.
    pub(super) fn panicked(&self) -> Error {
        Error::peer(self.rank, PeerReason::Dead, "its thread panicked")
    }

    /// Drives. Where that panics the group fails, and whoever waits for what is left is told; where that panics too, without moving it.
    pub(super) fn drive_to_the_end(&self) {
        if catch_unwind(AssertUnwindSafe(|| self.drive())).is_ok() {
            return;
        }
        let error = self.panicked();
        let go_on = || {
            self.fail(error.clone());
            // Where ranks disagreed before they do not come together any more.
            self.give_up(error.clone());
            self.end_all(&error);
            self.drive();
        };
        if catch_unwind(AssertUnwindSafe(go_on)).is_err() {
            self.end_what_is_left(error);
        }
    }

    /// Ends all that was submitted, and leaves what is submitted later to whoever does that.
    fn end_what_is_left(&self, error: Error) {
        self.give_up(error.clone());
        self.lane.break_off();
        // First: what comes after that sees it.
        self.lane.close();
        let told = self.check_message().err().unwrap_or_else(|| error.in_its_wake());
        let failed = self.post().take_failed();
        failed.into_iter().for_each(|message| message.tell(told.clone(), self.now()));
        self.post().end_all(&told, self.now());
        while let Some((job, turn)) = self.lane.next(Duration::ZERO) {
            job.call.end(|| self.now(), Some(&told));
            let news = job.slot.fill(Err(told.clone()));
            drop(turn);
            drop(news);
        }
    }

    /// Plays what is queued and moves asynchronous messages, until the host is dropped and nothing is left that anybody
    /// counts on.
    fn drive(&self) {
        let mut patience = Patience::until(&self.bell, self.crowd, None);
        let mut disagreed = None;
        loop {
            if self.lane.is_closed() {
                self.post().leave();
            }
            let is_busy = self.drive_post(&mut patience, &mut disagreed);
            if self.lane.is_finished() && !(is_busy && self.post().is_wanted()) {
                return;
            }
            let limit = if is_busy { Duration::ZERO } else { IDLE };
            if let Some((job, turn)) = self.lane.next(limit) {
                let news = self.play_job(job);
                drop(turn);
                drop(news);
                patience.renew();
            } else if let Some(job) = self.lane.take_overdue() {
                let stuck = self.absent(&job.call, self.lane.turn());
                self.fail_queued(job, stuck);
            }
        }
    }

    fn play_job(&self, mut job: Job) -> News {
        let mut buffers = std::mem::take(&mut job.buffers);
        let call = &job.call;
        let mut data = buffers.data();
        call.start(self.now());
        let play = || self.check(call).and_then(|()| self.play(call, &mut data));
        // Whoever waits for this call, or for one behind it, is told of a panic too.
        let played = catch_unwind(AssertUnwindSafe(play)).unwrap_or_else(|_| {
            let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
            Err(self.fail_playing(call, self.panicked(), &mut stage))
        });
        call.end(|| self.now(), played.as_ref().err());
        job.slot.fill(played.map(|()| Finished { buffers, source: None }))
    }

    /// Ends the group because a collective has waited too long for its turn, which this one has: however well it moves, that one keeps its
    /// own deadline. Where this one's is over as well, it says so itself.
    pub(super) fn fail_overdue(&self, call: &Call, playing: &mut Playing<'_>) {
        if self.lane.has_queued()
            && self.deadline(call).is_none_or(|deadline| Instant::now() < deadline)
            && let Some(job) = self.lane.take_overdue()
        {
            self.fail_queued(job, self.stuck(call, playing));
        }
    }

    /// Ends the group because a collective has waited too long for its turn, which reports that itself.
    pub(super) fn fail_queued(&self, job: Job, stuck: Vec<Stuck>) {
        let error = self.fail_call(&job.call, self.kinship.traced(job.call.timed_out(stuck)));
        job.call.end(|| self.now(), Some(&error));
        drop(job.slot.fill(Err(error)));
    }
}

/// How long the driver sleeps when there is nothing to do; whatever comes wakes it earlier.
const IDLE: Duration = Duration::from_secs(3600);
