//! The vocabulary of schedules: places, spans and steps.

use super::{Algorithm, Lending};
use crate::link::Lease;

/// One rank's whole part in one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// How the operation is carried out.
    pub algorithm: Algorithm,
    /// What this rank does, in order: a step begins when the one before it has ended.
    pub steps: Vec<Step>,
    /// Elements of scratch memory needed.
    pub scratch: usize,
    /// What is done in the place of the steps where all ranks can lend their memory. It is an offer more, before all others.
    pub lending: Option<Lending>,
}

/// The memory that a span lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// The caller's input, which is never written.
    Input,
    /// The caller's output; of operations in place, its only buffer.
    Output,
    /// Memory of the player's own.
    Scratch,
}

/// A run of elements in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// Where.
    pub place: Place,
    /// First element.
    pub start: usize,
    /// Number of elements.
    pub len: usize,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Bytes go to one peer and come from another, both at once. A receive that folds joins what comes to what is there.
    Move {
        /// What goes out.
        send: Option<Send>,
        /// What comes in.
        recv: Option<Recv>,
    },
    /// Spans are published, one after the other, to the peers of this host as this rank's next offer.
    Offer {
        /// What is published.
        spans: Vec<Span>,
        /// Whether a later step writes the spans before whoever reads them has offered that it did. If none does the peers
        /// may read them where they are.
        lease: Lease,
    },
    /// A part of a peer's offer is copied from its window.
    Pull {
        /// The peer, or this rank itself.
        from: usize,
        /// Which of its offers in this operation, from 0.
        offer: usize,
        /// First element of the part, counted from the start of the offer.
        start: usize,
        /// Where it goes.
        into: Span,
    },
    /// Parts of several peers' offers and one of this rank's own memory are joined, in the order given, and stored.
    PullAll {
        /// Where the peers' parts are.
        from: Vec<Part>,
        /// Which of their offers in this operation, from 0.
        offer: usize,
        /// What this rank adds; it may be where the result goes.
        own: Span,
        /// How many of the peers' parts come before its own.
        place: usize,
        /// Where the result goes.
        into: Span,
        /// Whether these are all the inputs there are, so that an average divides here.
        whole: bool,
    },
    /// Elements are copied within this rank.
    Copy {
        /// From where.
        from: Span,
        /// To where; the same length.
        into: Span,
    },
    /// Spans are joined in order with wide accumulators and rounded once.
    Combine {
        /// Where the result goes; it may be one of the parts.
        into: Span,
        /// What is joined; all of the length of `into`.
        parts: Vec<Span>,
        /// Whether these are all the inputs there are, so that an average divides here.
        whole: bool,
    },
    /// This rank's factor is multiplied in.
    Scale(Span),
    /// An average that was folded pair by pair is divided by the number of ranks.
    Finish(Span),
}

/// Elements that go to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Send {
    /// The peer.
    pub to: usize,
    /// What is sent.
    pub span: Span,
}

/// Elements that come from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recv {
    /// The peer.
    pub from: usize,
    /// Where they go.
    pub span: Span,
    /// What becomes of what is there.
    pub then: Then,
}

/// Where a part begins in a peer's offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The peer.
    pub rank: usize,
    /// First element of the part, counted from the start of the offer.
    pub start: usize,
}

/// What a receive does to the memory it receives into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is replaced.
    Store,
    /// It is joined with what comes.
    Fold,
}

impl Schedule {
    /// Elements that this rank sends over links.
    pub fn sent(&self) -> usize {
        let sent = |step: &Step| match step {
            Step::Move { send: Some(send), .. } => send.span.len,
            _ => 0,
        };
        self.steps.iter().map(sent).sum()
    }

    /// Elements that this rank publishes to the peers of its host.
    pub fn offered(&self) -> usize {
        let offered = |step: &Step| match step {
            Step::Offer { spans, .. } => spans.iter().map(|span| span.len).sum(),
            _ => 0,
        };
        self.steps.iter().map(offered).sum()
    }

    /// How many offers this rank makes.
    pub fn offers(&self) -> usize {
        let offers = self.steps.iter().filter(|step| matches!(step, Step::Offer { .. })).count();
        offers + usize::from(self.lending.is_some())
    }
}

impl Place {
    /// The span of `len` elements from `start`.
    pub fn span(self, start: usize, len: usize) -> Span {
        Span { place: self, start, len }
    }
}

impl Span {
    /// One past the last element.
    pub fn end(self) -> usize {
        self.start + self.len
    }

    /// Whether no element is in both.
    pub fn is_apart_from(self, other: Span) -> bool {
        self.place != other.place || self.end() <= other.start || other.end() <= self.start || self.len * other.len == 0
    }

    /// Its elements in order, `len` at a time.
    pub(crate) fn blocks(self, len: usize) -> impl Iterator<Item = Span> {
        (0..self.len).step_by(len).map(move |at| self.place.span(self.start + at, len.min(self.len - at)))
    }

    /// The `index`-th of `pieces` parts, which differ by at most one element and follow each other without a gap.
    pub fn piece(self, index: usize, pieces: usize) -> Span {
        let cut = |index: usize| portion(self.len, index, pieces);
        self.place.span(self.start + cut(index), cut(index + 1) - cut(index))
    }
}

/// `len * index / pieces`, without overflow.
pub(super) fn portion(len: usize, index: usize, pieces: usize) -> usize {
    (len / pieces) * index + (len % pieces) * index / pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_span_without_gap() {
        for len in [0, 1, 2, 7, 1000] {
            for pieces in 1..=9 {
                let span = Place::Output.span(5, len);
                let mut at = span.start;
                for index in 0..pieces {
                    let piece = span.piece(index, pieces);
                    assert_eq!(piece.start, at);
                    assert!(piece.len.abs_diff(len / pieces) <= 1);
                    at = piece.end();
                }
                assert_eq!(at, span.end());
            }
        }
    }

    #[test]
    fn empty_spans_and_other_places_are_apart() {
        let span = Place::Output.span(2, 4);
        assert!(!span.is_apart_from(Place::Output.span(5, 9)));
        assert!(span.is_apart_from(Place::Output.span(6, 9)));
        assert!(span.is_apart_from(Place::Output.span(3, 0)));
        assert!(span.is_apart_from(Place::Input.span(2, 4)));
    }
}
