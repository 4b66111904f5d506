//! The seam below the group: a backend takes operations and ends them. Everything per operation is done above it.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;
use std::time::Duration;

use phalanx_mem::Buffer;

use crate::call::Call;
use crate::player::Data;
use crate::reduce::Factor;
use crate::{DType, Error, Op, OpKind, Result};

/// Whoever carries operations out.
///
/// Collectives are played in the order of their sequence numbers; messages in any. Every call ends within its timeout. So that it
/// is known what a rank does, a backend [opens](Call::open) a call before it waits for anything in it, and [ends](Call::end) each.
pub trait Backend: Send + Sync {
    /// Numbers an operation that is about to be called. Where ranks disagreed before, this is where they come together again,
    /// for which it waits at most this long.
    ///
    /// # Errors
    ///
    /// Of what the group failed, where it cannot come together again, or this rank was not told so far.
    fn number(&self, op: OpKind, timeout: Duration) -> Result<Number>;

    /// That this backend has an operation like this: what it has not is refused before it is numbered, so that the ranks' numbers stay
    /// alike.
    ///
    /// # Errors
    ///
    /// [`Usage`](crate::ErrorKind::Usage) for what it has not.
    fn accepts(&self, _op: &Op, _dtype: DType, _factor: Option<Factor>) -> Result<()> {
        Ok(())
    }

    /// The number that the next collective would have.
    fn upcoming(&self) -> u32;

    /// Queues an operation with its buffers. Never waits for a peer.
    fn submit(&self, call: Call, buffers: Buffers) -> Box<dyn Pending>;

    /// Queues messages that belong together, so that the order among them does not matter. Never waits for a peer.
    fn submit_all(&self, messages: Vec<(Call, Buffers)>) -> Vec<Box<dyn Pending>> {
        messages.into_iter().map(|(call, buffers)| self.submit(call, buffers)).collect()
    }

    /// Plays an operation on the calling thread over buffers that are only lent. Returns the sender of a message that
    /// was received.
    ///
    /// # Errors
    ///
    /// As [every operation](crate::Group#errors), with ranks by their numbers in the group.
    fn run(&self, call: &Call, data: &mut Data<'_>) -> Result<Option<usize>>;

    /// Ends everything under way and to come with `cause`. Idempotent and bounded; the first cause stays.
    fn abort(&self, cause: Error);

    /// Zeroed memory for buffers, where there is such of a kind that peers can read without a copy.
    ///
    /// # Errors
    ///
    /// [`Setup`](crate::ErrorKind::Setup) when memory is out.
    fn allocate(&self, byte_len: usize) -> Result<Buffer> {
        Buffer::try_zeroed(byte_len).map_err(|error| Error::setup("buffer", error))
    }

    /// The time that the flight recorder writes down, since a moment of the backend's choice.
    fn now(&self) -> Duration;
}

/// The number of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// How often the ranks had come together again before: an operation belongs to the round it was numbered in.
    pub round: u32,
    /// Collectives count alike on every rank, messages on each rank for themselves.
    pub sequence: u32,
    /// How long the ranks took to come together before, which is of the call's time.
    pub waited: Duration,
}

/// Gives out the numbers of one round.
#[derive(Debug, Default)]
pub struct Numbers {
    round: u32,
    collectives: AtomicU32,
    messages: AtomicU32,
}

impl Numbers {
    /// The numbers of a round, the first of whose collectives has this one.
    pub fn new(round: u32, first: u32) -> Numbers {
        Numbers { round, collectives: AtomicU32::new(first), messages: AtomicU32::new(0) }
    }

    /// The round.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// The next number.
    pub fn next(&self, op: OpKind) -> Number {
        let counter = if op.is_message() { &self.messages } else { &self.collectives };
        Number { round: self.round, sequence: counter.fetch_add(1, Ordering::Relaxed), waited: Duration::ZERO }
    }

    /// The number that the next collective would have.
    pub fn upcoming(&self) -> u32 {
        self.collectives.load(Ordering::Relaxed)
    }
}

/// The buffers of an operation that owns them.
#[derive(Debug, Default)]
pub struct Buffers {
    /// What the caller gives; absent when the operation works in place.
    pub input: Option<Buffer>,
    /// What the caller gets.
    pub output: Buffer,
}

impl Buffers {
    /// What is played over them.
    pub fn data(&mut self) -> Data<'_> {
        let input = self.input.as_ref().map(Buffer::as_bytes).unwrap_or_default();
        Data { input, output: self.output.as_bytes_mut() }
    }
}

/// An operation that has ended well.
#[derive(Debug, Default)]
pub struct Finished {
    /// Its buffers.
    pub buffers: Buffers,
    /// The sender of a message that was received.
    pub source: Option<usize>,
}

/// An operation under way. Dropping it lets the operation go on.
pub trait Pending: Send {
    /// Whether the end has come.
    fn is_done(&self) -> bool;

    /// The end, once it has come; otherwise `waker` is told when it comes. The end is given once.
    fn poll(&mut self, waker: &Waker) -> Option<Result<Finished>>;

    /// Waits for the end, at most this long.
    fn wait(&mut self, limit: Option<Duration>) -> Option<Result<Finished>>;
}

impl fmt::Debug for dyn Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}

impl fmt::Debug for dyn Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Backend")
    }
}
