//! What was called together: collectives one after the other, messages beside them, in the order of one stream.

use std::collections::VecDeque;

use super::trouble::Trouble;
use crate::api::{DataType, Span, Stream, Transfer};
use crate::kernels::Way;

/// Calls of one communicator on one stream, and how far they have come.
#[derive(Debug)]
pub(super) struct Lot {
    pub(super) stream: Stream,
    pub(super) collectives: VecDeque<Collective>,
    /// Messages to each rank, and from each.
    pub(super) sends: Vec<VecDeque<Message>>,
    pub(super) recvs: Vec<VecDeque<Message>>,
    /// Whether its stream comes after what other streams did for the communicator before.
    pub(super) has_begun: bool,
}

/// One call as it was made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Called {
    Collective(Kind, Transfer, Option<Way>),
    Send(Transfer, usize),
    Recv(Transfer, usize),
}

/// Which collective, with its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    AllReduce,
    Broadcast(usize),
    Reduce(usize),
    AllGather,
    ReduceScatter,
}

/// A collective under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collective {
    pub(super) kind: Kind,
    pub(super) what: Transfer,
    /// How elements are joined, where they are.
    pub(super) way: Option<Way>,
    /// Elements that are done with.
    pub(super) done: usize,
    /// Whether this rank's piece of the round lies on its desk.
    pub(super) is_posted: bool,
}

/// A message under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) span: Span,
    pub(super) dtype: DataType,
    /// Bytes that are done with.
    pub(super) done: usize,
}

impl Lot {
    pub(super) fn new(stream: Stream, size: usize) -> Lot {
        let nobody = || (0..size).map(|_| VecDeque::new()).collect();
        Lot { stream, collectives: VecDeque::new(), sends: nobody(), recvs: nobody(), has_begun: false }
    }

    /// Adds a call, which has been checked.
    pub(super) fn add(&mut self, call: Called) {
        let message = |what: Transfer, span| Message { span, dtype: what.dtype, done: 0 };
        match call {
            // All ranks have as many elements: none, all of them.
            Called::Collective(_, what, _) if what.count == 0 => {}
            Called::Collective(kind, what, way) => {
                self.collectives.push_back(Collective { kind, what, way, done: 0, is_posted: false });
            }
            Called::Send(what, peer) => self.sends[peer].push_back(message(what, what.send)),
            Called::Recv(what, peer) => self.recvs[peer].push_back(message(what, what.recv)),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        let is_empty = |lists: &[VecDeque<Message>]| lists.iter().all(VecDeque::is_empty);
        self.collectives.is_empty() && is_empty(&self.sends) && is_empty(&self.recvs)
    }
}

impl Called {
    /// The same with memory that is as long as it must be.
    pub(super) fn checked(self, rank: usize, size: usize) -> Result<Called, Trouble> {
        let (Called::Collective(_, what, _) | Called::Send(what, _) | Called::Recv(what, _)) = self;
        let byte_len = |parts: usize| {
            let each = what.dtype.byte_len()?.checked_mul(what.count)?;
            each.checked_mul(parts)
        };
        let cut = |span: Span, parts: usize, side: &str| {
            let wanted =
                byte_len(parts).ok_or_else(|| Trouble::argument(format!("{} of type {}", what.count, what.dtype.0)))?;
            let short = || Trouble::argument(format!("{side} has {} bytes, and must have {wanted}", span.byte_len()));
            span.part(0, wanted).ok_or_else(short)
        };
        let send = |parts| cut(what.send, parts, "what is sent");
        let recv = |parts| cut(what.recv, parts, "where it is received");
        let known = |peer: usize| {
            let unknown = || Trouble::argument(format!("rank {peer} is none of {size}"));
            (peer < size).then_some(peer).ok_or_else(unknown)
        };
        let what = |send, recv| Transfer { send, recv, ..what };
        Ok(match self {
            Called::Send(_, peer) => Called::Send(what(send(1)?, Span::EMPTY), known(peer)?),
            Called::Recv(_, peer) => Called::Recv(what(Span::EMPTY, recv(1)?), known(peer)?),
            Called::Collective(kind, _, way) => {
                let what = match kind {
                    Kind::AllReduce => what(send(1)?, recv(1)?),
                    Kind::Broadcast(root) if known(root)? == rank => what(send(1)?, recv(1)?),
                    Kind::Broadcast(_) => what(Span::EMPTY, recv(1)?),
                    Kind::Reduce(root) if known(root)? == rank => what(send(1)?, recv(1)?),
                    Kind::Reduce(_) => what(send(1)?, Span::EMPTY),
                    Kind::AllGather => what(send(1)?, recv(size)?),
                    Kind::ReduceScatter => what(send(size)?, recv(1)?),
                };
                Called::Collective(kind, what, way)
            }
        })
    }
}

impl Collective {
    /// What it is, in words that are the same on all ranks.
    pub(super) fn words(&self) -> String {
        let Transfer { count, dtype, .. } = self.what;
        let name = match self.kind {
            Kind::AllReduce => "ncclAllReduce".to_owned(),
            Kind::Broadcast(root) => format!("ncclBroadcast from {root}"),
            Kind::Reduce(root) => format!("ncclReduce to {root}"),
            Kind::AllGather => "ncclAllGather".to_owned(),
            Kind::ReduceScatter => "ncclReduceScatter".to_owned(),
        };
        let way = match self.way {
            None => String::new(),
            // The factor is each rank's own.
            Some(Way::Scale(_)) => ", scaled".to_owned(),
            Some(Way::Own(op)) => format!(", {:?}", op.reduce()),
        };
        format!("{name} of {count} elements of type {}{way}", dtype.0)
    }
}
