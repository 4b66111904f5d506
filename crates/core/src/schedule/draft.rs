//! A schedule in the making: steps are added in order, empty ones are left out, scratch is handed out in spans.

use super::{Algorithm, Lending, Part, Place, Recv, Schedule, Send, Span, Step, Then};
use crate::link::Lease;
use crate::reduce::ReduceOp;

/// Collects the steps of one rank.
#[derive(Debug)]
pub(super) struct Draft {
    reduce: Option<ReduceOp>,
    steps: Vec<Step>,
    scratch: usize,
    offers: usize,
}

impl Draft {
    /// An empty schedule of an operation that joins elements like this, if it does.
    pub(super) fn new(reduce: Option<ReduceOp>) -> Draft {
        Draft { reduce, steps: vec![], scratch: 0, offers: 0 }
    }

    /// The finished schedule.
    pub(super) fn finish(self, algorithm: Algorithm, lending: Option<Lending>) -> Schedule {
        Schedule { algorithm, steps: self.steps, scratch: self.scratch, lending }
    }

    /// A new span of scratch memory.
    pub(super) fn scratch(&mut self, len: usize) -> Span {
        let span = Place::Scratch.span(self.scratch, len);
        self.scratch += len;
        span
    }

    pub(super) fn send(&mut self, to: usize, span: Span) {
        self.moving(Some(Send { to, span }), None);
    }

    pub(super) fn recv(&mut self, from: usize, span: Span, then: Then) {
        self.moving(None, Some(Recv { from, span, then }));
    }

    /// A send and a receive at once.
    pub(super) fn swap(&mut self, send: Send, recv: Recv) {
        self.moving(Some(send), Some(recv));
    }

    /// A send and a receive at once, empty or not: for lengths that each side knows for itself, so that a difference shows.
    pub(super) fn swap_always(&mut self, send: Send, recv: Recv) {
        self.steps.push(Step::Move { send: Some(send), recv: Some(recv) });
    }

    /// A send, a receive, both or neither. Both sides know a span's length, so an empty one costs no message.
    pub(super) fn moving(&mut self, send: Option<Send>, recv: Option<Recv>) {
        let send = send.filter(|send| send.span.len > 0);
        let recv = recv.filter(|recv| recv.span.len > 0);
        if send.is_some() || recv.is_some() {
            self.steps.push(Step::Move { send, recv });
        }
    }

    pub(super) fn copy(&mut self, from: Span, into: Span) {
        debug_assert_eq!(from.len, into.len);
        if from.len > 0 && from != into {
            self.steps.push(Step::Copy { from, into });
        }
    }

    pub(super) fn combine(&mut self, into: Span, parts: Vec<Span>, whole: bool) {
        if into.len > 0 {
            self.steps.push(Step::Combine { into, parts, whole });
        }
    }

    /// Multiplies this rank's factor in, for reductions that have one.
    pub(super) fn scale(&mut self, span: Span) {
        if span.len > 0 && self.reduce == Some(ReduceOp::PreMulSum) {
            self.steps.push(Step::Scale(span));
        }
    }

    /// Completes what was folded pair by pair, for reductions that need it.
    pub(super) fn complete(&mut self, span: Span) {
        if span.len > 0 && self.reduce == Some(ReduceOp::Avg) {
            self.steps.push(Step::Finish(span));
        }
    }

    /// Publishes `spans` and returns the offer's number. An empty offer counts: it says that this rank has come so far.
    pub(super) fn offer(&mut self, spans: Vec<Span>) -> usize {
        self.publish(spans, Lease::View)
    }

    /// The same for spans that the peers only copy.
    pub(super) fn offer_to_copy(&mut self, spans: Vec<Span>) -> usize {
        self.publish(spans, Lease::Fetch)
    }

    /// The same for spans that are written while peers may still read them, so that a copy must be made.
    pub(super) fn offer_copy(&mut self, spans: Vec<Span>) -> usize {
        self.publish(spans, Lease::None)
    }

    fn publish(&mut self, spans: Vec<Span>, lease: Lease) -> usize {
        self.steps.push(Step::Offer { spans, lease });
        self.offers += 1;
        self.offers - 1
    }

    /// Reads a part of a peer's offer. An empty part is not left out: it waits for the offer.
    pub(super) fn pull(&mut self, from: usize, offer: usize, start: usize, into: Span) {
        self.steps.push(Step::Pull { from, offer, start, into });
    }

    /// Joins parts of the peers' offers with this rank's `own`, in the order of `ranks`. `start` tells where the part begins
    /// in a peer's offer.
    pub(super) fn pull_all(
        &mut self,
        (ranks, me): (Vec<usize>, usize),
        offer: usize,
        start: impl Fn(usize) -> usize,
        (own, into): (Span, Span),
        whole: bool,
    ) {
        let place = ranks.iter().position(|&rank| rank == me).unwrap_or_default();
        let peers = ranks.into_iter().filter(|&rank| rank != me);
        let from = peers.map(|rank| Part { rank, start: start(rank) }).collect();
        self.steps.push(Step::PullAll { from, offer, own, place, into, whole });
    }
}
