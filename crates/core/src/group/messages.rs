//! Messages between two ranks: send, receive and batches of both.

use std::panic::Location;

use phalanx_mem::Buffer;

use super::check::check_peer;
use super::{Group, bytes, bytes_mut};
use crate::backend::{Buffers, Finished};
use crate::work::Work;
use crate::{Element, Error, Op, OpKind, Result};

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
    #[track_caller]
    pub fn send<T: Element>(&self, data: &[T], to: usize, tag: u32) -> Result<()> {
        let op = Op::Send { count: data.len(), to, tag };
        self.run_bytes(op, T::DTYPE, None, Some(bytes(data)), &mut []).map(drop)
    }

    /// Receives the next message of `from`, or of whichever rank sends first, under this tag. Returns the sender.
    #[track_caller]
    pub fn recv<T: Element>(&self, data: &mut [T], from: impl Into<Option<usize>>, tag: u32) -> Result<usize> {
        let from = from.into();
        let op = Op::Recv { count: data.len(), from, tag };
        let source = self.run_bytes(op, T::DTYPE, None, Some(&[]), bytes_mut(data))?;
        source.or(from).ok_or_else(|| Error::usage(OpKind::Recv, "from", "any", "must be known once a message came"))
    }

    /// Begins to send `data`, which comes back with the work.
    #[track_caller]
    pub fn send_async<T: Element>(&self, data: Vec<T>, to: usize, tag: u32) -> Result<Work<Delivered<T>>> {
        self.post(Message::Send { data, to, tag }, Location::caller())
    }

    /// Begins to receive into `data`, which comes back with the work.
    #[track_caller]
    pub fn recv_async<T: Element>(
        &self,
        data: Vec<T>,
        from: impl Into<Option<usize>>,
        tag: u32,
    ) -> Result<Work<Delivered<T>>> {
        self.post(Message::Recv { data, from: from.into(), tag }, Location::caller())
    }

    /// Begins all messages of a batch at once, so that their order does not matter, and waits for all. They come back in
    /// the order given. When one of them cannot be accepted, none is sent.
    #[track_caller]
    pub fn batch<T: Element>(&self, messages: Vec<Message<T>>) -> Result<Vec<Delivered<T>>> {
        let site = Location::caller();
        for message in &messages {
            check_peer(&message.op(), &self.shared.layout)?;
        }
        let posted: Vec<_> = messages.into_iter().map(|message| self.post(message, site)).collect::<Result<_>>()?;
        posted.into_iter().map(Work::wait).collect()
    }

    fn post<T: Element>(&self, message: Message<T>, site: &'static Location<'static>) -> Result<Work<Delivered<T>>> {
        let op = message.op();
        let (data, output, peer) = match message {
            Message::Send { data, to, .. } => (Buffer::from_vec(data), Buffer::default(), Some(to)),
            Message::Recv { data, from, .. } => (Buffer::default(), Buffer::from_vec(data), from),
        };
        let buffers = Buffers { input: Some(data), output };
        let kind = op.kind();
        let pending = self.submit_from(op, T::DTYPE, None, buffers, site)?;
        Ok(Work::new(kind, pending, move |Finished { buffers, source }| {
            let buffer = if kind == OpKind::Send { buffers.input.unwrap_or_default() } else { buffers.output };
            Delivered { data: super::asynchronous::elements(buffer), peer: source.or(peer).unwrap_or_default() }
        }))
    }
}

impl<T> Message<T> {
    fn op(&self) -> Op {
        match self {
            Message::Send { data, to, tag } => Op::Send { count: data.len(), to: *to, tag: *tag },
            Message::Recv { data, from, tag } => Op::Recv { count: data.len(), from: *from, tag: *tag },
        }
    }
}
