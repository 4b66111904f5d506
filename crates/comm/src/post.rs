//! The post office of one rank: its mail, the links it travels over, and the asynchronous messages under way.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use phalanx_core::backend::{Buffers, Finished};
use phalanx_core::link::{Mesh, Whole};
use phalanx_core::mail::{Body, Delivery, Mail, Shown, Ticket};
use phalanx_core::player::Data;
use phalanx_core::{Call, Error, Op, Result, Scope, Stuck};
use phalanx_mem::Buffer;

use crate::fate::Fate;
use crate::slot::{News, Slot};

/// All messages of one rank.
#[derive(Debug)]
pub(crate) struct Post {
    mail: Mail,
    mesh: Mesh,
    fate: Arc<Fate>,
    outstanding: Vec<Outstanding>,
    /// Asynchronous messages of which the group fails: that must be so before they tell it.
    failed: Vec<Failed>,
    /// Of what the tasks that wait for messages are to be told, once this is nobody's any more.
    news: Vec<News>,
}

/// The post office while a thread has it. What it has put in is told when it has it no more.
#[derive(Debug)]
pub(crate) struct Open<'a> {
    // The first field: it is given back before anybody is told.
    post: MutexGuard<'a, Post>,
    news: Vec<News>,
    leaves_news: bool,
}

impl<'a> Open<'a> {
    pub(crate) fn new(post: MutexGuard<'a, Post>) -> Open<'a> {
        Open { post, news: vec![], leaves_news: false }
    }

    /// Of a thread that leaves what is to be told to the next one that has the post office.
    pub(crate) fn in_passing(post: MutexGuard<'a, Post>) -> Open<'a> {
        Open { post, news: vec![], leaves_news: true }
    }
}

impl Deref for Open<'_> {
    type Target = Post;

    fn deref(&self) -> &Post {
        &self.post
    }
}

impl DerefMut for Open<'_> {
    fn deref_mut(&mut self) -> &mut Post {
        &mut self.post
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.leaves_news {
            self.news = std::mem::take(&mut self.post.news);
        }
    }
}

/// An asynchronous message that has failed, and is to tell that yet.
#[derive(Debug)]
pub(crate) struct Failed {
    waiting: Outstanding,
    pub(crate) error: Error,
}

/// An asynchronous message under way.
#[derive(Debug)]
struct Outstanding {
    ticket: Ticket,
    call: Call,
    deadline: Option<Instant>,
    slot: Arc<Slot>,
}

impl Post {
    pub(crate) fn new(mail: Mail, mesh: Mesh, fate: Arc<Fate>) -> Post {
        Post { mail, mesh, fate, outstanding: vec![], failed: vec![], news: vec![] }
    }

    /// Moves a message at once and whole, if nothing stands before it.
    pub(crate) fn move_at_once(&mut self, call: &Call, data: &mut Data<'_>) -> Whole {
        let Post { mail, mesh, .. } = self;
        match &call.op {
            Op::Send { to, tag, .. } => mail.send_at_once(mesh, *to, *tag, call.dtype, data.input),
            Op::Recv { from: Some(from), tag, .. } => mail.recv_at_once(mesh, *from, *tag, call.dtype, data.output),
            _ => Whole::Never,
        }
    }

    /// Begins a message over what the caller lends, and shows whenever it polls.
    pub(crate) fn post(&mut self, call: &Call, data: &Data<'_>) -> Ticket {
        self.begin(call, Body::Lent(data.input.len()), Body::Lent(data.output.len()))
    }

    /// Begins a message whose end is put into `slot`.
    pub(crate) fn post_async(&mut self, call: Call, buffers: Buffers, slot: Arc<Slot>) {
        let ticket = self.begin(&call, Body::Owned(buffers.input.unwrap_or_default()), Body::Owned(buffers.output));
        let deadline = Instant::now().checked_add(call.timeout);
        self.outstanding.push(Outstanding { ticket, call, deadline, slot });
    }

    fn begin(&mut self, call: &Call, input: Body, output: Body) -> Ticket {
        match &call.op {
            Op::Send { to, tag, .. } => self.mail.send(*to, *tag, call.dtype, input, self.mesh.checksum()),
            Op::Recv { from, tag, .. } => self.mail.recv(*from, *tag, call.dtype, output),
            collective => unreachable!("{} is no message", collective.kind()),
        }
    }

    /// Whether an asynchronous message is under way, which somebody has to drive.
    pub(crate) fn is_busy(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Whether a task is to be told of an end.
    pub(crate) fn has_to_tell(&self) -> bool {
        !self.news.is_empty()
    }

    /// Whether anybody counts on an asynchronous message under way: the peer that is to get it, or whoever holds its work.
    pub(crate) fn is_wanted(&self) -> bool {
        let held = |waiting: &Outstanding| Arc::strong_count(&waiting.slot) > 1;
        self.outstanding.iter().any(|waiting| matches!(waiting.call.op, Op::Send { .. }) || held(waiting))
    }

    /// Says that nothing more will be asked for.
    pub(crate) fn leave(&mut self) {
        self.mail.leave();
    }

    /// Moves what can be moved and ends what has ended; true when anything moved. A caller that has lent something shows it.
    pub(crate) fn poll(&mut self, now: impl Fn() -> Duration, shown: Option<Shown<'_, '_>>) -> bool {
        let moved = self.mail.poll(&mut self.mesh, shown);
        let Post { mail, outstanding, fate, failed, news, .. } = self;
        let mut at = 0;
        while let Some(waiting) = outstanding.get(at) {
            let Some(end) = mail.take(waiting.ticket) else {
                at += 1;
                continue;
            };
            let waiting = outstanding.remove(at);
            match end {
                Err(error) if !error.is_private() && fate.first_failure().is_none() => {
                    failed.push(Failed { waiting, error });
                }
                end => {
                    let end = end.map_err(|error| first_failure(fate, error));
                    news.push(waiting.end(&now, end.map(|delivery| finished(&waiting.call, delivery))));
                }
            }
        }
        moved
    }

    /// Takes in what nobody has asked for yet, for a rank that has waited long; true when anything moved. A peer may wait for that.
    pub(crate) fn take_in(&mut self) -> bool {
        self.mail.take_in(&mut self.mesh)
    }

    /// The asynchronous messages of which the group is to fail now, since this was asked last.
    pub(crate) fn take_failed(&mut self) -> Vec<Failed> {
        std::mem::take(&mut self.failed)
    }

    /// The first asynchronous message whose deadline has passed: the group is to fail of it too. The mail goes on with it.
    pub(crate) fn take_overdue(&mut self) -> Option<Failed> {
        if self.outstanding.is_empty() {
            return None;
        }
        let now = Instant::now();
        let is_late = |waiting: &Outstanding| waiting.deadline.is_some_and(|deadline| deadline <= now);
        let waiting = self.outstanding.remove(self.outstanding.iter().position(is_late)?);
        let error = self.timed_out(&waiting.call, waiting.ticket);
        Some(Failed { waiting, error })
    }

    /// Ends all asynchronous messages with this error, which is that of the round. The mail goes on with them until it is over.
    pub(crate) fn end_all(&mut self, error: &Error, now: Duration) {
        self.news.extend(self.outstanding.drain(..).map(|waiting| waiting.end(|| now, Err(error.clone()))));
    }

    /// Whether there is anything for a thread that waits for a message: its end, or that it has to poll.
    pub(crate) fn has_news(&mut self) -> bool {
        self.mail.has_news()
    }

    /// The end of a blocking message, once it has come.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Result<Delivery>> {
        self.mail.take(ticket)
    }

    /// The error of a message that took too long.
    pub(crate) fn timed_out(&self, call: &Call, ticket: Ticket) -> Error {
        call.timed_out(self.stuck(ticket))
    }

    /// The peers that a message waits for.
    pub(crate) fn stuck(&self, ticket: Ticket) -> Vec<Stuck> {
        self.mail.stuck(ticket)
    }

    /// Ends every message with `error` and closes the links.
    pub(crate) fn close(&mut self, error: &Error, now: Duration) {
        self.mail.abort(error);
        self.poll(|| now, None);
        self.mesh.close();
    }
}

impl Failed {
    /// Tells what the group failed of.
    pub(crate) fn tell(self, reported: Error, now: Duration) {
        drop(self.waiting.end(|| now, Err(reported)));
    }
}

impl Outstanding {
    fn end(&self, now: impl FnOnce() -> Duration, end: Result<Finished>) -> News {
        self.call.end(now, end.as_ref().err());
        self.slot.fill(end)
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.slot.forsake();
    }
}

/// What a message reports that ends in `error`: a rank that fails closes its links, and why it failed was sealed before.
fn first_failure(fate: &Fate, error: Error) -> Error {
    match error.scope() {
        Scope::Call => error,
        _ => fate.check().err().unwrap_or(error),
    }
}

/// A delivery as the end of the call that asked for it.
fn finished(call: &Call, delivery: Delivery) -> Finished {
    let Delivery { buffer, peer } = delivery;
    match call.op {
        Op::Send { .. } => Finished { buffers: Buffers { input: buffer, output: Buffer::default() }, source: None },
        _ => Finished { buffers: Buffers { input: None, output: buffer.unwrap_or_default() }, source: Some(peer) },
    }
}
