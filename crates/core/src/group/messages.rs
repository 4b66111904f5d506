//! Messages between two ranks: send, receive and batches of both.

use phalanx_mem::Buffer;

use super::check::check_peer;
use super::{Group, bytes, bytes_mut};
use crate::backend::{Buffers, Finished};
use crate::work::{Underway, Work};
use crate::{Call, Element, Error, Op, OpKind, Result, Site};

/// One message of a batch.
#[derive(Debug)]
pub enum Message<T> {
    /// Elements for a rank.
    Send {
        /// What is sent.
        data: Vec<T>,
        /// The receiver.
        to: usize,
        /// The tag.
        tag: u32,
    },
    /// Elements from a rank, or from whichever sends first.
    Recv {
        /// Where they go; its length says how many are expected.
        data: Vec<T>,
        /// The sender; any when absent.
        from: Option<usize>,
        /// The tag.
        tag: u32,
    },
}

/// A message that has been sent or received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered<T> {
    /// Its elements.
    pub data: Vec<T>,
    /// The rank at the other end.
    pub peer: usize,
}

impl Group {
    /// Sends `data` to a rank, which receives it under the same tag. Returns when `data` may be used again.
    ///
    /// A receiver that has not asked for it yet keeps it, up to 64 MiB from each rank, as soon as it waits for anything in this
    /// group; beyond that, and while it does something else, a message longer than a link holds waits for it.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are a receiver that is this rank or none of the group, and a tag of
    /// [the group's own](Group::OWN_TAGS).
    #[track_caller]
    pub fn send<T: Element>(&self, data: &[T], to: usize, tag: u32) -> Result<()> {
        let op = Op::Send { count: data.len(), to, tag };
        self.run_bytes(op, T::DTYPE, None, Some(bytes(data)), &mut []).map(drop)
    }

    /// Receives the next message of `from`, or of whichever rank sends first, under this tag. Returns the sender.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are a sender that is this rank or none of the group, any in a group of one rank, and a tag of
    /// [the group's own](Group::OWN_TAGS). A message of another length or type is [`Desync`](Error::Desync) on this rank alone and dropped; the
    /// group goes on.
    #[track_caller]
    pub fn recv<T: Element>(&self, data: &mut [T], from: impl Into<Option<usize>>, tag: u32) -> Result<usize> {
        let from = from.into();
        let op = Op::Recv { count: data.len(), from, tag };
        let source = self.run_bytes(op, T::DTYPE, None, Some(&[]), bytes_mut(data))?;
        source.or(from).ok_or_else(|| Error::usage(OpKind::Recv, "from", "any", "must be known once a message came"))
    }

    /// Begins to send `data`, which comes back with the work.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as in [`send`](Group::send).
    #[track_caller]
    pub fn send_async<T: Element>(&self, data: Vec<T>, to: usize, tag: u32) -> Result<Work<Delivered<T>>> {
        self.post(Message::Send { data, to, tag }, Site::caller())
    }

    /// Begins to receive into `data`, which comes back with the work.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors); arguments are refused at once, as in [`recv`](Group::recv), and the rest is as there.
    #[track_caller]
    pub fn recv_async<T: Element>(
        &self,
        data: Vec<T>,
        from: impl Into<Option<usize>>,
        tag: u32,
    ) -> Result<Work<Delivered<T>>> {
        self.post(Message::Recv { data, from: from.into(), tag }, Site::caller())
    }

    /// Begins all messages of a batch at once, so that their order does not matter, and waits for all. They come back in
    /// the order given. When one of them cannot be accepted, none is sent; when some fail, the first of their errors comes back
    /// once all have ended.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors), and as [`send`](Group::send) and [`recv`](Group::recv).
    #[track_caller]
    pub fn batch<T: Element>(&self, messages: Vec<Message<T>>) -> Result<Vec<Delivered<T>>> {
        let posted = self.post_all(messages, Site::caller())?;
        // One that nobody waits for any more would take a later message in the place of whoever asks for that.
        let ended: Vec<_> = posted.into_iter().map(Work::wait).collect();
        ended.into_iter().collect()
    }

    /// Begins all messages of a batch at once, so that their order does not matter. Each has a work of its own, in the order given: wait for
    /// all, because a receive that is left takes a later message in the place of whoever asks for that. When one of them cannot be
    /// accepted, none is sent.
    ///
    /// # Errors
    ///
    /// As [`send_async`](Group::send_async) and [`recv_async`](Group::recv_async).
    #[track_caller]
    pub fn batch_async<T: Element>(&self, messages: Vec<Message<T>>) -> Result<Vec<Work<Delivered<T>>>> {
        self.post_all(messages, Site::caller())
    }

    fn post_all<T: Element>(&self, messages: Vec<Message<T>>, site: Site) -> Result<Vec<Work<Delivered<T>>>> {
        for message in &messages {
            check_peer(&message.op(), &self.shared.layout)?;
        }
        let mut batch = Vec::with_capacity(messages.len());
        for message in messages {
            match self.prepare(message, site) {
                Ok(prepared) => batch.push(prepared),
                Err(error) => {
                    // Ranks in it have the world's numbers already, which is what ends of calls are yet to get.
                    let end = match &error {
                        Error::Usage(_) => error.clone(),
                        other => Error::aborted(other.to_string()),
                    };
                    batch.iter().for_each(|(call, ..): &Prepared| call.end(|| self.now(), Some(&end)));
                    return Err(error);
                }
            }
        }
        let (ends, calls): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|(call, buffers, peer)| {
                call.open(self.now());
                ((call.op.kind(), call.flight.clone(), peer), (call, buffers))
            })
            .unzip();
        let posted =
            self.shared.backend.submit_all(calls).into_iter().zip(ends).map(|(pending, (kind, flight, peer))| {
                let pending = Underway { pending: self.alarmed(pending, flight.clone()), flight };
                Work::new(kind, pending, move |finished| delivered(kind, finished, peer))
            });
        Ok(posted.collect())
    }

    fn post<T: Element>(&self, message: Message<T>, site: Site) -> Result<Work<Delivered<T>>> {
        let (call, buffers, peer) = self.prepare(message, site)?;
        let kind = call.op.kind();
        Ok(Work::new(kind, self.submit(call, buffers), move |finished| delivered(kind, finished, peer)))
    }

    /// A message that was checked, numbered and written down.
    fn prepare<T: Element>(&self, message: Message<T>, site: Site) -> Result<Prepared> {
        let op = message.op();
        let (data, output, peer) = match message {
            Message::Send { data, to, .. } => (Buffer::from_vec(data), Buffer::default(), Some(to)),
            Message::Recv { data, from, .. } => (Buffer::default(), Buffer::from_vec(data), from),
        };
        let call = self.call(op, T::DTYPE, None, Some(data.as_bytes()), output.as_bytes(), site)?;
        Ok((call, Buffers { input: Some(data), output }, peer))
    }
}

/// A message with its memory and the other rank, where that is known.
type Prepared = (Call, Buffers, Option<usize>);

fn delivered<T: Element>(kind: OpKind, finished: Finished, peer: Option<usize>) -> Delivered<T> {
    let Finished { buffers, source } = finished;
    let buffer = if kind == OpKind::Send { buffers.input.unwrap_or_default() } else { buffers.output };
    Delivered { data: super::asynchronous::elements(buffer), peer: source.or(peer).unwrap_or_default() }
}

impl<T> Message<T> {
    fn op(&self) -> Op {
        match self {
            Message::Send { data, to, tag } => Op::Send { count: data.len(), to: *to, tag: *tag },
            Message::Recv { data, from, tag } => Op::Recv { count: data.len(), from: *from, tag: *tag },
        }
    }
}
