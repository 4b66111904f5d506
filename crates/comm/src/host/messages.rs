//! Messages of one rank: whoever waits for one moves all, and so does whoever waits for anything else.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::backend::{Buffers, Finished};
use phalanx_core::link::Whole;
use phalanx_core::mail::Shown;
use phalanx_core::player::Data;
use phalanx_core::{Call, Error, Op, Result};

use super::Inner;
use crate::patience::Patience;
use crate::post::{Failed, Open, Post};
use crate::pulse::Pulse;

impl Inner {
    pub(super) fn run_message(&self, call: &Call, data: &mut Data<'_>) -> Result<Option<usize>> {
        if self.move_at_once(call, data) { Ok(sender(call)) } else { self.run_queued(call, data) }
    }

    /// What an asynchronous message brings that can be moved whole now: nobody has to be woken for it.
    pub(super) fn finish_at_once(&self, call: &Call, buffers: &mut Buffers) -> Option<Finished> {
        let has_moved = call.op.is_message() && self.post().move_at_once(call, &mut buffers.data()) == Whole::Moved;
        has_moved.then(|| Finished { buffers: std::mem::take(buffers), source: sender(call) })
    }

    /// The same behind others, bit by bit, for as long as it takes.
    fn run_queued(&self, call: &Call, data: &mut Data<'_>) -> Result<Option<usize>> {
        let mut post = self.post();
        let ticket = post.post(call, data);
        let mut patience = Patience::until(&self.bell, self.crowd, None);
        let mut vigil = self.kinship.vigil();
        let mut pulse = Pulse::default();
        let (mut disagreed, mut is_first) = (None, true);
        loop {
            let moved = post.poll(|| self.now(), Some(Shown { ticket, data }));
            if !moved && patience.is_tried() {
                self.take_in(&mut post);
            }
            let failed = post.take_failed();
            if !failed.is_empty() {
                drop(post);
                self.fail_of(failed);
                post = self.post();
            }
            let end = post.take(ticket);
            self.wake_others(&mut post);
            if let Some(end) = end {
                drop(post);
                let delivery = end.map_err(|error| self.fail_unless_call(error))?;
                if let Some(buffer) = delivery.buffer {
                    data.output.copy_from_slice(buffer.as_bytes());
                }
                return Ok(Some(delivery.peer).filter(|_| matches!(call.op, Op::Recv { .. })));
            }
            if std::mem::take(&mut is_first) {
                call.start_when_called(|| self.now());
                patience.bound(self.deadline(call));
            }
            if !moved && patience.is_fresh() {
                // What is waited for mostly comes at once, before it is worth while to let other threads in.
                patience.wait();
                continue;
            }
            drop(post);
            self.check_message()?;
            let is_in_time = if moved {
                vigil.end();
                patience.renew()
            } else if let Some(quarrel) = self.fate.quarrel() {
                // A peer that was told of it may never come to this message.
                if disagreed.get_or_insert_with(Instant::now).elapsed() >= PATIENCE_WITH_QUARRELS {
                    self.has_told.store(true, Ordering::Release);
                    return Err(quarrel.into());
                }
                thread::yield_now();
                true
            } else {
                let is_in_time = patience.wait();
                if is_in_time && patience.is_long() {
                    self.check_keeper(&mut pulse).map_err(|error| self.fail(error))?;
                    if !vigil.is_told() {
                        // Of several any one may send what it waits for.
                        vigil.tell_any(&self.post().stuck(ticket));
                    }
                }
                is_in_time
            };
            if !is_in_time {
                let error = self.post().timed_out(call, ticket);
                vigil.give_up();
                return Err(self.fail(self.kinship.traced(error)));
            }
            post = self.post();
        }
    }

    /// Moves a message whole, if nothing stands before it. One that is to come is looked for a few times: mostly it comes at once, and whoever
    /// finds it so has the least to do. Asynchronous ones wait for whoever looks, so where there are any all are moved instead.
    fn move_at_once(&self, call: &Call, data: &mut Data<'_>) -> bool {
        let mut post = self.post();
        for look in 0..=self.crowd.spins() {
            match post.move_at_once(call, data) {
                Whole::Moved => return true,
                Whole::NotNow if post.is_busy() => return false,
                Whole::NotNow if look == 0 => call.start_when_called(|| self.now()),
                Whole::NotNow => {}
                Whole::Never => return false,
            }
        }
        false
    }

    /// Moves asynchronous messages, with a wait when nothing moved; false when there are none. `disagreed` is when nothing moved for the
    /// first time while ranks disagree.
    pub(super) fn drive_post(&self, patience: &mut Patience<'_>, disagreed: &mut Option<Instant>) -> bool {
        let mut post = self.post();
        let moved = post.poll(|| self.now(), None);
        if !moved && patience.is_tried() {
            self.take_in(&mut post);
        }
        let (is_busy, failed, overdue) = (post.is_busy(), post.take_failed(), post.take_overdue());
        self.wake_others(&mut post);
        drop(post);
        self.fail_of(failed);
        if let Some(overdue) = overdue {
            self.fail_of([overdue]);
        } else if let Err(error) = self.check_message() {
            self.post().close(&error, self.now());
        } else if is_busy && !moved {
            match self.fate.quarrel() {
                // A peer that was told of it may never come to these messages.
                Some(quarrel) if disagreed.get_or_insert_with(Instant::now).elapsed() >= PATIENCE_WITH_QUARRELS => {
                    self.has_told.store(true, Ordering::Release);
                    self.post().end_all(&quarrel.into(), self.now());
                }
                Some(_) => thread::yield_now(),
                None => drop(patience.wait()),
            }
        } else {
            *disagreed = None;
            patience.renew();
        }
        is_busy
    }

    /// Moves asynchronous messages while a collective waits, unless another thread does. Once it `has_waited` for long, also
    /// those that nobody has asked for: their sender may have to come to the collective yet.
    pub(super) fn drive_post_in_passing(&self, has_waited: bool) {
        // This thread has a turn, for which a task may wait where it is told: the driver has none while another thread plays.
        let is_driver = self.is_driver();
        let enter = if is_driver { Open::new } else { Open::in_passing };
        let Ok(mut post) = self.post.try_lock().map(enter) else {
            return;
        };
        if !has_waited && !post.is_busy() {
            return;
        }
        let moved = post.poll(|| self.now(), None);
        if has_waited {
            self.take_in(&mut post);
        }
        if has_waited && moved {
            self.bell.ring();
        }
        self.wake_others(&mut post);
        let (failed, overdue) = (post.take_failed(), post.take_overdue());
        let is_left = post.has_to_tell();
        drop(post);
        if is_left && !is_driver {
            self.lane.nudge();
            self.bell.ring();
        }
        self.fail_of(failed.into_iter().chain(overdue));
    }

    /// Takes in what nobody has asked for. That is not what this thread waits for: its wait goes on.
    fn take_in(&self, post: &mut Post) {
        if post.take_in() {
            // There may be more, which nobody rings for: this thread is not to sleep yet.
            self.bell.ring();
        }
    }

    /// Wakes the threads whose messages came to their end while this one moved all that could be moved, or have to be moved
    /// by them.
    fn wake_others(&self, post: &mut Post) {
        if post.has_news() {
            self.bell.ring();
        }
    }

    /// That messages may go on: they are not what ranks disagree about.
    pub(super) fn check_message(&self) -> Result<()> {
        match self.fate.check() {
            Err(error) if !matches!(error, Error::Desync(_)) => Err(error),
            _ => Ok(()),
        }
    }

    fn fail_unless_call(&self, error: Error) -> Error {
        if error.is_private() { error } else { self.fail(error) }
    }

    /// Ends the group because asynchronous messages failed or took too long, which report that then.
    fn fail_of(&self, failed: impl IntoIterator<Item = Failed>) {
        for message in failed {
            let reported = self.fail(self.kinship.traced(message.error.clone()));
            message.tell(reported, self.now());
        }
    }
}

/// The sender of a message that was received whole.
fn sender(call: &Call) -> Option<usize> {
    if let Op::Recv { from, .. } = call.op { from } else { None }
}

/// How long a message goes on without moving once ranks disagree about something else.
const PATIENCE_WITH_QUARRELS: Duration = Duration::from_millis(100);
